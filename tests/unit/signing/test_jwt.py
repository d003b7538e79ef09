"""Tokens about the body: one algorithm, one spelling, the body that they name, the time that they state."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import sys
from datetime import timedelta

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from billhook.errors import (
    ConfigError,
    MissingExtra,
    SignatureError,
    SignatureMalformed,
    SignatureMismatch,
    TimestampInFuture,
    TimestampTooOld,
    WeakSecret,
)
from billhook.errors.program import install_command
from billhook.signing import BodyJWT
from support.signing_cases import (
    NOW,
    OTHER_TEXT_SECRET,
    TEXT_SECRET,
    TIMESTAMP,
    Delivery,
    pems,
    rsa_pems,
    verify,
)

HEADER = "X-Webhook-Signature"
BODY = b'{"amount": "12.50"}'
HASH = hashlib.sha256(BODY).hexdigest()
HS256 = BodyJWT(algorithm="HS256")
UNTIMED = BodyJWT(algorithm="HS256", replay_protection="dedupe-only")
RS256 = BodyJWT()
GOOD = {"data": HASH, "iat": TIMESTAMP}
NONE = b'{"alg":"none"}'


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def token(
    claims: object = GOOD, *, key: str = TEXT_SECRET, algorithm: str = "HS256", **stated: object
) -> str:
    """What PyJWT makes of it."""
    return jwt.encode(claims, key, algorithm, headers=stated or None)


def signed(header: bytes, payload: bytes) -> str:
    """Any two parts, and a good signature over them."""
    content = f"{b64(header)}.{b64(payload)}"
    algorithm = jwt.get_algorithm_by_name("HS256")
    return f"{content}.{b64(algorithm.sign(content.encode(), TEXT_SECRET.encode()))}"


def judged(text: str, scheme: BodyJWT = HS256, *, secrets=(TEXT_SECRET,), body: bytes = BODY, at=NOW):
    return verify(scheme, Delivery({HEADER: text}, body), list(secrets), at=at)


def test_pyjwt_and_we_accept_each_other():
    private, public = rsa_pems("case")
    curve = ec.generate_private_key(ec.SECP256R1())
    curve_private, curve_public = pems(curve)
    for name, signing, verifying in (
        ("RS256", private, public),
        ("ES256", curve_private, curve_public),
        ("HS256", TEXT_SECRET, TEXT_SECRET),
        ("HS512", TEXT_SECRET * 2, TEXT_SECRET * 2),
    ):
        scheme = BodyJWT(algorithm=name, issuer="billing")
        by_them = token(GOOD | {"iss": "billing"}, key=signing, algorithm=name)
        by_us = scheme.sign(BODY, signing, event_type="PingTest", now=NOW)[HEADER]

        verdict = judged(by_them, scheme, secrets=[verifying])

        assert verdict.signed_at == NOW
        assert verdict.key == "sha256:" + hashlib.sha256(by_them.rpartition(".")[0].encode()).hexdigest()
        assert judged(by_us, scheme, secrets=[verifying]).signed_at == NOW
        options = {"verify_iat": False}
        assert jwt.decode(by_us, verifying, [name], options=options) == GOOD | {"iss": "billing"}


def test_the_body_itself_may_be_the_claim():
    scheme = BodyJWT(algorithm="HS256", claim="payload", claim_holds="body", replay_protection="dedupe-only")

    assert judged(token({"payload": BODY.decode()}), scheme).signed_at is None
    assert judged(scheme.sign(BODY, TEXT_SECRET, event_type="PingTest", now=NOW)[HEADER], scheme)
    with pytest.raises(ValueError, match="codec can't decode"):
        scheme.sign(b"\xff", TEXT_SECRET, event_type="PingTest", now=NOW)


def test_another_body_another_key_and_another_issuer_are_mismatches():
    ours = BodyJWT(algorithm="HS256", issuer="billing")
    others = (HASH[:-1], HASH.upper(), None, [HASH], 5, "\u00e9")

    assert judged(token(GOOD | {"iss": "billing"}), ours)
    for text, scheme, body in (
        (token({"iat": TIMESTAMP}), HS256, BODY),
        *((token(GOOD | {"data": other}), HS256, BODY) for other in others),
        (token(), HS256, BODY + b" "),
        (token(key=OTHER_TEXT_SECRET), HS256, BODY),
        (token(GOOD | {"iss": "another"}), ours, BODY),
        (token(), ours, BODY),
    ):
        with pytest.raises(SignatureMismatch, match="no signature in the request matches"):
            judged(text, scheme, body=body)


# --- one algorithm --------------------------------------------------------------------------------


def test_a_token_that_names_another_algorithm_is_malformed():
    private, public = rsa_pems("case")
    claims = json.dumps(GOOD).encode()
    none = f"{b64(NONE)}.{b64(claims)}."
    for text, scheme, key in (
        (none, HS256, TEXT_SECRET),
        (none + b64(b"x"), HS256, TEXT_SECRET),
        (token(algorithm="HS512", key=TEXT_SECRET * 2), HS256, TEXT_SECRET),
        (token(key=private, algorithm="RS256"), HS256, TEXT_SECRET),
        (token(key=private, algorithm="RS512"), RS256, public),
        (token(key=private, algorithm="PS256"), RS256, public),
        (signed(b'{"alg":"hs256"}', claims), HS256, TEXT_SECRET),
        (signed(b'{"alg":["HS256"]}', claims), HS256, TEXT_SECRET),
        (signed(b'{"typ":"JWT"}', claims), HS256, TEXT_SECRET),
        (token(crit=["x"], x=1), HS256, TEXT_SECRET),
    ):
        with pytest.raises(SignatureMalformed, match=r"a token of another kind|base64url"):
            judged(text, scheme, secrets=[key])


def test_the_public_key_as_a_shared_secret_opens_nothing():
    _, public = rsa_pems("case")
    content = f"{b64(NONE.replace(b'none', b'RS256'))}.{b64(json.dumps(GOOD).encode())}"
    mac = hmac.digest(public.encode(), content.encode(), "sha256")

    with pytest.raises(SignatureMismatch):
        judged(f"{content}.{b64(mac)}", RS256, secrets=[public])
    with pytest.raises(ConfigError, match="a key is not one for HS256"):
        HS256.load([public.strip()])


# --- one spelling ---------------------------------------------------------------------------------

CLAIMS = json.dumps(GOOD).encode()
ALG = b'{"alg":"HS256"}'


NOT_TOKENS = [
    "", ".", "..", "...", "x" * 9_000, f"{token()}.", f".{token()}", token().replace(".", ".."),
    token().rpartition(".")[0], f"{token()}=", f"{token()} ", f" {token()}", f"Bearer {token()}",
    token().replace("_", "/").replace("-", "+") + "+",
    signed(ALG, CLAIMS[:-1] + b', "iat": 1}'), signed(b"[" * 1_500, CLAIMS), signed(ALG, b"[" * 3_000),
    *(signed(ALG, part) for part in (b"[]", b"5", b"\xff", b"{", b'{"iat": 1e999999}', b'{"iat": NaN}')),
    signed(ALG, b'{"data": "\\ud800"}'),
]  # fmt: skip


def test_an_invalid_token_is_malformed():
    for text in NOT_TOKENS:
        with pytest.raises(SignatureMalformed, match=HEADER):
            judged(text)


@given(st.data())
def test_no_change_of_a_token_is_taken(data):
    good = token()
    at = data.draw(st.integers(0, len(good) - 1))
    cut = data.draw(st.integers(0, 3))
    other = good[:at] + data.draw(st.text("AZaz09-_.=+/ {\n", max_size=3)) + good[at + cut :]

    try:
        judged(other)
    except SignatureError:
        return
    assert other == good


@given(st.text(max_size=60), st.binary(max_size=20), st.binary(max_size=60), st.binary(max_size=60))
def test_any_text_verifies_or_raises_a_signature_error(text, body, header, payload):
    for each in (text, signed(header, payload), signed(ALG, payload)):
        with pytest.raises(SignatureError):
            judged(each, body=body)


# --- time -----------------------------------------------------------------------------------------


def test_a_time_is_a_whole_number_of_seconds():
    for iat in (None, True, "1614265730", 1614265730.5, -1, 253402300800, 10**30, [], {}):
        with pytest.raises(SignatureMalformed, match=r"whose iat is no whole number|a token without iat"):
            judged(signed(ALG, json.dumps(GOOD | {"iat": iat}).encode()))


def test_a_token_without_iat_needs_dedupe_only():
    untimed = token({"data": HASH})

    with pytest.raises(SignatureMalformed, match="a token without iat"):
        judged(untimed)
    assert judged(untimed, UNTIMED, at=NOW + timedelta(days=3650)).signed_at is None
    assert judged(token(), UNTIMED).signed_at is None


def test_an_old_token_is_stale():
    with pytest.raises(TimestampTooOld, match=r"signed 301\.0 s ago"):
        judged(token(), at=NOW + timedelta(seconds=301))
    with pytest.raises(SignatureMalformed):
        judged(token(GOOD | {"nbf": "tomorrow"}))


@pytest.mark.parametrize("scheme", [HS256, UNTIMED], ids=["timed", "untimed"])
@pytest.mark.parametrize(
    ("claim", "good", "bad", "error", "told"),
    [
        ("exp", 59, 60, TimestampTooOld, "the signature expired at 2021-02-25T15:09:50"),
        ("nbf", 60, 59, TimestampInFuture, "the signature is not good before 2021-02-25T15:14:50"),
    ],
)
def test_a_token_is_good_from_its_beginning_but_for_the_tolerance_to_its_end(
    scheme, claim, good, bad, error, told
):
    claims = GOOD | {claim: TIMESTAMP + (60 if claim == "exp" else 360)}

    assert judged(token(claims), scheme, at=NOW + timedelta(seconds=good))
    with pytest.raises(error, match=told):
        judged(token(claims), scheme, at=NOW + timedelta(seconds=bad))
    with pytest.raises(SignatureMismatch):  # and only an authentic one is called that
        judged(token(claims, key=OTHER_TEXT_SECRET), scheme, at=NOW + timedelta(seconds=bad))


# --- keys and options -----------------------------------------------------------------------------


def test_keys_are_judged_at_the_start():
    private, public = rsa_pems("case")
    curve = ec.generate_private_key(ec.SECP384R1())
    small = rsa_pems("short", 1024)[1]
    own = ec.generate_private_key(ec.SECP256R1()).public_key()  # in another form than PEM
    der = own.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    for scheme, key, text in (
        (RS256, private, "a private key was given to verify with"),
        (RS256, small, "an RSA key of 1024 bits is too short"),
        (RS256, pems(curve)[1], "a public key in PEM must be RSA"),
        (BodyJWT(algorithm="ES256"), public, "a key is not one for ES256"),
        (BodyJWT(algorithm="ES256"), pems(curve)[1], "a key is not one for ES256"),
        (BodyJWT(algorithm="ES256"), "nonsense", "a key is not one for ES256"),
        (BodyJWT(algorithm="ES256"), base64.b64encode(der).decode(), "for ES256: give a PEM of its kind"),
    ):
        with pytest.raises(ConfigError, match=text):
            scheme.load([key])
    with pytest.raises(WeakSecret, match="a secret of 5 bytes is too short"):
        HS256.load(["short"])
    with pytest.raises(WeakSecret, match="a secret of 5 bytes is too short"):
        HS256.sign(BODY, "short", event_type="PingTest", now=NOW)
    with pytest.raises(ConfigError, match="a public key was given to sign with: RS256 needs the private one"):
        RS256.sign(BODY, public, event_type="PingTest", now=NOW)


def test_options_that_cannot_work_are_refused():
    for options, told in (
        ({"algorithm": "none"}, "algorithm 'none' is not one of RS256, ES256, HS256, HS512"),
        ({"claim_holds": "md5"}, "claim_holds 'md5' is not one of sha256, body"),
        ({"replay_protection": "no"}, "replay_protection 'no' is not one of dedupe-only, None"),
        ({"header": "X Sig"}, "'X Sig' cannot be the name of a header"),
    ):
        with pytest.raises(ConfigError, match=told):
            BodyJWT(**options)


def test_body_jwt_without_its_extra_raises_when_constructed(monkeypatch):
    monkeypatch.setitem(sys.modules, "jwt", None)

    with pytest.raises(MissingExtra, match=re.escape(install_command("jwt"))):
        BodyJWT()
