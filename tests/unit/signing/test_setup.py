"""Wrong keys and wrong options: refused at start, by name, and never with the secret in the text."""

from __future__ import annotations

import base64
import contextlib
import re
import traceback

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from billhook.errors import ConfigError, MissingExtra, SignatureError, WeakSecret
from billhook.errors.program import install_command
from billhook.signing import (
    BodyHMAC,
    Keys,
    SignatureTemplate,
    StandardWebhooks,
    TimestampedHMAC,
    TimestampedRSA,
)
from support.signing_cases import (
    CASE_OF,
    CASES,
    NOW,
    TEXT_SECRET,
    WHSEC,
    Delivery,
    ed25519_pair,
    pems,
    rsa_pems,
    verify,
    without_cryptography,
)

SCHEMES = [
    StandardWebhooks(),
    TimestampedHMAC(),
    TimestampedRSA(),
    BodyHMAC("X-Sig", replay_protection="dedupe-only"),
    SignatureTemplate(),
]
WHSK, WHPK = ed25519_pair(b"\x05" * 32)
HALVES = ("\ud800", "\udfff")
NO_BASE64 = ("whsec_!" + "A" * 31, "whsec_" + "A" * 33, "\u00e9" * 32)


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


# --- secrets --------------------------------------------------------------------------------------


def test_secrets_are_a_list_that_is_not_empty():
    for scheme in SCHEMES:
        for secrets in ([], (), {}):
            with pytest.raises(ConfigError, match="no secret was given: list at least one"):
                scheme.load(secrets)
        for secrets in (WHSEC, b"0123456789abcdef", bytearray(20), None, 5, {WHSEC}):
            told = f"must be a list, newest first, got {type(secrets).__name__}"
            with pytest.raises(ConfigError, match=told):
                scheme.load(secrets)


def test_a_secret_that_is_not_text_is_refused_by_its_type():
    for scheme in SCHEMES:
        for secret in (5, b"0123456789abcdef", None, ["x" * 20]):
            told = f"a secret must be a str, got {type(secret).__name__}$"
            with pytest.raises(ConfigError, match=told):
                scheme.load([secret])
            with pytest.raises(ConfigError, match=told):
                scheme.sign(b"{}", secret, event_type="PingTest", now=NOW)


def test_a_secret_with_characters_that_do_not_belong_to_it_is_refused():
    for scheme, secret, told in (
        *((each, f"0123456789abcdef{half}", "not valid Unicode text") for each in SCHEMES for half in HALVES),
        *((StandardWebhooks(), each, "a secret is not valid base64") for each in NO_BASE64),
        (SignatureTemplate(secret_encoding="hex"), "xyz" * 12, "a secret is not valid hexadecimal"),
        (SignatureTemplate(algorithm="ed25519"), WHPK[5:], "an ed25519 key must be spelled whpk_<base64>"),
    ):
        with pytest.raises(ConfigError, match=told):
            scheme.load([secret])


def test_a_secret_of_15_bytes_is_weak_and_one_of_16_is_not():
    for scheme, spell in (
        (StandardWebhooks(), lambda length: b64(b"k" * length)),
        (SignatureTemplate(), lambda length: "k" * length),
    ):
        assert len(scheme.load([spell(16)])) == 1
        for length in (0, 15):
            with pytest.raises(WeakSecret, match=f"a secret of {length} bytes is too short") as refused:
                scheme.load([spell(16), spell(length)])
            assert refused.value.minimum_bytes == 16
    with pytest.raises(WeakSecret, match="a secret of 12 bytes is too short"):  # those behind the base64
        StandardWebhooks().load(["whsec_" + "k" * 16])


def test_a_text_secret_may_hold_any_character():
    delivery = CASE_OF["timestamped-hmac"].sign(secret="p\u00e4ssw\u00f6rter sind \u2713")

    assert verify(TimestampedHMAC(), delivery, ["p\u00e4ssw\u00f6rter sind \u2713"]).signed_at == NOW


def test_a_template_decodes_its_secret_by_secret_encoding():
    headers = SignatureTemplate().sign(b"{}", "k" * 16, event_type="PingTest", now=NOW)

    for secret_encoding, spelling in (("hex", "6b" * 16), ("base64", b64(b"k" * 16)), ("text", "k" * 16)):
        encoded = SignatureTemplate(secret_encoding=secret_encoding)
        assert verify(encoded, Delivery(headers, b"{}"), [spelling]).signed_at == NOW


# --- ed25519 keys ---------------------------------------------------------------------------------


def test_an_unfit_ed25519_key_is_refused():
    for key, told in (
        (WHSK, r"a private key \(whsk_\) cannot verify: give its public key, whpk_"),
        ("whpk_" + b64(b"x" * 31), "an ed25519 public key is 32 bytes, got 31"),
        ("whpk_", "an ed25519 public key is 32 bytes, got 0"),
        ("whpk_!!", "a secret is not valid base64"),
    ):
        with pytest.raises(ConfigError, match=told):
            StandardWebhooks().load([WHPK, key])
    for key, told in (
        (WHPK, "an ed25519 key must be spelled whsk_<base64>"),
        ("whsk_" + b64(b"x" * 33), "an ed25519 private key is 32 or 64 bytes, got 33"),
        ("whsk_" + b64(b"x" * 64), "ends in a public key that is not its own"),
    ):
        with pytest.raises(ConfigError, match=told):
            StandardWebhooks().sign(b"{}", key, event_type="PingTest", now=NOW)


FIELD = 2**255 - 19


# Each point whose order divides 8, as RFC 8032 encodes it: there are no more.
SMALL_ORDER = [
    bytes.fromhex(text)
    for text in (
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    )
]


def spelled(y: int, sign: int) -> str:
    return "whpk_" + b64((y | sign << 255).to_bytes(32, "little"))


def test_public_keys_for_which_anyone_can_sign_are_refused():
    for point in SMALL_ORDER:
        with pytest.raises(ConfigError, match="a point of small order, for which anyone can sign"):
            StandardWebhooks().load(["whpk_" + b64(point)])


def test_control_each_of_them_accepts_forged_signatures():
    for point in SMALL_ORDER:
        key, verified = ed25519.Ed25519PublicKey.from_public_bytes(point), 0
        for text in range(40):
            with contextlib.suppress(InvalidSignature):
                key.verify((1).to_bytes(32, "little") + bytes(32), b"%d" % text)
                verified += 1
        assert verified > 0


def test_only_keys_with_a_public_part_need_the_extra_and_their_error_is_the_line_to_type(monkeypatch):
    without_cryptography(monkeypatch)
    needing = (
        lambda: StandardWebhooks().load([WHPK]),
        lambda: StandardWebhooks().sign(b"{}", WHSK, event_type="PingTest", now=NOW),
        lambda: TimestampedRSA().load(["-----BEGIN PUBLIC KEY-----\n"]),
        lambda: TimestampedRSA().sign(b"{}", "-----BEGIN PRIVATE KEY-----", event_type="PingTest", now=NOW),
    )

    for use in needing:
        with pytest.raises(MissingExtra, match=re.escape(install_command("asymmetric"))):
            use()
    assert len(StandardWebhooks().load([WHSEC])) == 1


def test_a_second_spelling_of_a_public_key_is_refused():
    for y in (FIELD, FIELD + 1, FIELD + 18, 2**255 - 1):
        for sign in (0, 1):
            with pytest.raises(ConfigError, match="an ed25519 public key is not in canonical form"):
                StandardWebhooks().load([spelled(y, sign)])


# --- RSA keys -------------------------------------------------------------------------------------


def encrypted_pem() -> str:
    key = serialization.load_pem_private_key(rsa_pems("case")[0].encode(), password=None)
    encryption = serialization.BestAvailableEncryption(b"password")
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    ).decode()


def test_an_rsa_key_that_is_weak_or_of_another_kind_neither_verifies_nor_signs():
    for (private, public), told in (
        (rsa_pems("short", 1024), "an RSA key of 1024 bits is too short: at least 2048 are needed"),
        (
            pems(rsa.generate_private_key(public_exponent=3, key_size=2048)),
            "an RSA key with the exponent 3 is weak: at least 65537 is needed",
        ),
        (pems(ed25519.Ed25519PrivateKey.generate()), r"key in PEM must be RSA, got Ed25519P\w+Key"),
        (pems(ec.generate_private_key(ec.SECP256R1())), r"key in PEM must be RSA, got (EC|Elliptic)\w+Key"),
    ):
        with pytest.raises(ConfigError, match=told):
            TimestampedRSA().load([public])
        with pytest.raises(ConfigError, match=told):
            TimestampedRSA().sign(b"{}", private, event_type="PingTest", now=NOW)


def test_what_is_no_key_in_pem_is_refused():
    private, public = rsa_pems("case")
    empty = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"

    with pytest.raises(ConfigError, match="give the public key, the receiver needs no more"):
        TimestampedRSA().load([private])
    for key in ("", "x" * 40, empty, "\u00e9" * 20):
        with pytest.raises(ConfigError, match="a key is not a public key in PEM"):
            TimestampedRSA().load([key])
    for key in ("", public, encrypted_pem()):
        with pytest.raises(ConfigError, match="a key is not an unencrypted private key in PEM"):
            TimestampedRSA().sign(b"{}", key, event_type="PingTest", now=NOW)


def test_a_key_id_header_needs_keys_with_ids():
    scheme = TimestampedRSA(key_id_header="X-Key")
    private, public = rsa_pems("case")

    with pytest.raises(ConfigError, match=r"key_id_header needs \{key id: key\} mappings"):
        scheme.load([{"a": public}, public])
    with pytest.raises(ConfigError, match="a key id is given twice"):
        scheme.load([{"a": public}, {"a": rsa_pems("other")[1]}])
    for key_id in ("", None, 5):
        with pytest.raises(
            ConfigError, match=f"a key id must be a str and not empty, got {type(key_id).__name__}"
        ):
            scheme.load({key_id: public})
    with pytest.raises(ConfigError, match=r"key_id_header needs the signing key as \{key id: key\}"):
        scheme.sign(b"{}", private, event_type="PingTest", now=NOW)
    with pytest.raises(ConfigError, match="sign with one key, got a mapping of 2"):
        scheme.sign(b"{}", {"a": private, "b": private}, event_type="PingTest", now=NOW)


# --- options --------------------------------------------------------------------------------------


def test_a_scheme_without_a_signed_time_needs_dedupe_only():
    for make in (
        lambda: BodyHMAC("X-Sig"),
        lambda: SignatureTemplate(content="{type}.{body}"),
        lambda: SignatureTemplate(content="{body}", replay_protection="none"),
    ):
        with pytest.raises(
            ConfigError, match=r'signs no time, .* accept that with replay_protection="dedupe-only"'
        ):
            make()
    with pytest.raises(ConfigError, match="signs the time: leave replay_protection out"):
        SignatureTemplate(replay_protection="dedupe-only")


CONTENTS = [
    ("{timestamp}", "unix", r"has no \{body\}"),
    ("", "unix", r"has no \{body\}"),
    ("{timestamp}{body}", "unix", "has two fields side by side"),
    ("{timestamp}.{id}{body}", "unix", "has two fields side by side"),
    ("{timestamp}.{body}.{body}", "unix", r"has \{body\} twice"),
    ("{timestamp}.{secret}.{body}", "unix", r"has the placeholder \{secret\}: only \{id\}"),
    ("{timestamp}.{}.{body}", "unix", r"has the placeholder \{\}"),
    ("{timestamp!r}.{body}", "unix", r"has the placeholder \{timestamp!r\}"),
    ("{{timestamp}}.{body}", "unix", "must be ASCII, with braces around placeholders only"),
    ("{timestamp}\u00b7{body}", "unix", "must be ASCII"),
    ("{timestamp}0{body}", "unix", r"has a digit beside \{timestamp\}, which could be a part of"),
    ("{body}.0{timestamp}", "unix", r"has a digit beside \{timestamp\}"),
    ("{timestamp}9{body}", "unix-ms", r"a digit .* part of the time \(unix-ms"),
    *(
        (
            f"{{timestamp}}{character.strip('[]')}{{body}}",
            "iso-8601",
            rf"has '{character}' beside \{{timestamp\}}",
        )
        for character in ("[.]", "Z", "[+]")
    ),
]
UNTIMED = {"content": "{body}", "replay_protection": "dedupe-only"}
LISTED = {"signature_entry": "v1"}
TEMPLATES = [
    *(({"content": content, "time_format": time}, told) for content, time, told in CONTENTS),
    ({"time_format": "rfc-850"}, "time_format 'rfc-850' is not one of unix, unix-ms, iso-8601, http-date"),
    ({"algorithm": "hmac-md5"}, "algorithm 'hmac-md5' is not one of hmac-sha256, hmac-sha512, rsa-"),
    ({"encoding": "base32"}, "encoding 'base32' is not one of hex, base64"),
    ({"secret_encoding": "rot13"}, "secret_encoding 'rot13' is not one of text, base64, hex"),
    ({"time_entry": "t"}, "time_entry needs signature_entry"),
    ({**LISTED, "time_entry": "t", "timestamp_header": "X-T"}, "timestamp_header and time_entry are two"),
    ({**UNTIMED, "time_entry": "t"}, r"time_entry is given, but content .* does not sign \{timestamp\}"),
    ({**UNTIMED, "timestamp_header": "X-T"}, r"content '\{body\}' does not sign \{timestamp\}"),
    ({"id_header": "X-Id"}, r"id_header is given, but content .* does not sign \{id\}"),
    ({**LISTED, "time_entry": "v1"}, "the entry 'v1' is given two meanings"),
    ({"signature_entry": "v 1"}, "'v 1' cannot name an entry: use 1 to 16 letters and digits"),
    ({"signature_entry": ""}, "'' cannot name an entry"),
    ({**LISTED, "time_entry": "t="}, "'t=' cannot name an entry"),
    ({**LISTED, "entry_separator": " "}, "entry_separator ' ' is not one of , ;"),
    (
        {**LISTED, "time_entry": "t", "time_format": "http-date"},
        r"entry_separator ',' may be within a time \(http-date\)",
    ),
    ({"prefix": " v1="}, "prefix ' v1=' must be ASCII, and no header begins with white space"),
    *(({"prefix": prefix}, "prefix .* must be ASCII") for prefix in ("v1\n", "\u00e9")),
    *(({"signature_header": name}, "cannot be the name of a header") for name in ("X Sig", "", "X-Sig\n", 5)),
    ({"timestamp_header": "x-webhook-signature"}, "is given two meanings"),
]


def test_a_template_that_cannot_work_is_refused():
    for options, told in TEMPLATES:
        with pytest.raises(ConfigError, match=told):
            SignatureTemplate(**options)


def test_header_names_are_checked_in_every_preset():
    for make in (
        lambda: StandardWebhooks(id_header="webhook-signature"),
        lambda: TimestampedHMAC("X Sig"),
        lambda: TimestampedRSA("X-Same", "X-Same"),
        lambda: BodyHMAC("X:Sig", replay_protection="dedupe-only"),
    ):
        with pytest.raises(ConfigError, match=r"is given two meanings|cannot be the name of a header"):
            make()


# --- nothing is told ------------------------------------------------------------------------------


def leaks(text: str, secret: str) -> bool:
    """True when any 8 characters of the secret stand in the text."""
    return any(secret[n : n + 8] in text for n in range(len(secret) - 7))


def text_of_error(error: BaseException) -> str:
    """The traceback's text and everything that the exceptions in it carry."""
    text = "".join(traceback.format_exception(error))
    link: BaseException | None = error
    while link is not None:
        text += repr(link) + repr(link.args) + repr(vars(link))
        link = link.__cause__ or link.__context__
    return text


def test_keys_and_schemes_show_no_secret():
    for case in CASES:
        keys = case.scheme.load(case.verifying)
        shown = f"{keys!r} {keys!s} {keys} {case.scheme!r} {case.scheme!s} {vars(type(keys)).keys()}"

        assert isinstance(keys, Keys)
        assert repr(keys) == "<Keys: 1>"
        for secret in (*case.verifying, case.signing):
            text = secret if isinstance(secret, str) else "".join(secret.values())
            body = text.split("KEY-----")[1] if "KEY-----" in text else text
            assert not leaks(shown, body)


def test_signature_errors_leak_neither_the_secret_nor_the_request():
    sent = "UNIQUE-WORDS-OF-AN-ATTACKER"
    for case in CASES:
        good = case.sign()
        for name in good.headers:
            with pytest.raises(SignatureError, match=r" is not ASCII text$") as refused:
                case.verify(good._replace(headers=good.headers | {name: f"{sent}\u00e9"}))
            assert not leaks(text_of_error(refused.value), sent)
        with pytest.raises(SignatureError, match="no signature in the request matches") as refused:
            case.verify(good._replace(body=sent.encode()))
        assert not leaks(text_of_error(refused.value), sent)
        assert not leaks(text_of_error(refused.value), str(case.verifying))


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_an_invalid_secret_is_not_in_the_error(scheme):
    refusals = []
    for secret in (
        "hunter2-hunter",
        "hunter2-hunter2-hunter2\n",
        "whpk_hunter2-hunter2",
        "hunter2-hunter2-\ud800",
        "whsk_hunter2-hunter2",
        "-----BEGIN PRIVATE KEY-----hunter2-hunter2",
    ):
        for use in (scheme.load, lambda secrets: scheme.sign(b"{}", secrets[0], event_type="x", now=NOW)):
            try:
                use([secret])
            except ConfigError as refused:
                refusals.append(text_of_error(refused))

    assert not any("hunter2" in told for told in refusals)
    assert len(refusals) == 12 or scheme.name not in ("standard-webhooks", "timestamped-rsa")
    assert refusals


def test_the_search_for_leaks_finds_one():
    with pytest.raises(UnicodeEncodeError, match="ordinal not in range") as careless:
        (TEXT_SECRET + "\u00e9").encode("ascii")

    assert leaks(text_of_error(careless.value), TEXT_SECRET)
