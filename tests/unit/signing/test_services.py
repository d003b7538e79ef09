"""The pages' schemes for services, against what those publish or what others compute."""

from __future__ import annotations

from datetime import timedelta

import jwt
import pytest

from billhook.errors import SignatureError, SignatureMismatch, TimestampTooOld
from support.signing_cases import TEXT_SECRET, Delivery, rsa_pems, verify
from support.signing_services import AT, BODY, SENT, recipes

UNTIMED = {"square", "lago_hmac", "lago_jwt"}


def test_each_recipe_is_tested():
    assert set(recipes()) == set(SENT)


@pytest.mark.parametrize("service", SENT)
def test_each_services_signature_verifies_and_no_other_body_or_key(service):
    headers, body, secret, at = SENT[service]
    stranger = rsa_pems("other")[1] if "PUBLIC" in secret else "another-secret-of-some-32-letters"

    verdict = verify(recipes()[service], Delivery(headers, body), [secret], at=at)

    assert verdict.signed_at == (None if service in UNTIMED else at)
    for changed, key in ((body + b" ", secret), (body, stranger)):
        with pytest.raises(SignatureMismatch, match="no signature in the request matches"):
            verify(recipes()[service], Delivery(headers, changed), [key], at=at)


def test_an_old_one_is_refused():
    for service in set(SENT) - UNTIMED:
        headers, body, secret, at = SENT[service]

        with pytest.raises(SignatureError) as refused:
            verify(recipes()[service], Delivery(headers, body), [secret], at=at + timedelta(seconds=301))
        assert type(refused.value) is (SignatureMismatch if service == "bridge" else TimestampTooOld)


def test_each_recipe_reproduces_the_services_signature():
    for service in set(SENT) - {"bridge", "lago_jwt", "orb"}:
        headers, body, secret, at = SENT[service]

        assert recipes()[service].sign(body, secret, event_type="PingTest", now=at) == headers


def test_each_recipe_verifies_its_own_signature():
    private, public = rsa_pems("case")
    for service, signing, verifying in (
        ("bridge", private, public),
        ("lago_jwt", private, public),
        ("orb", TEXT_SECRET, TEXT_SECRET),
    ):
        headers = recipes()[service].sign(BODY, signing, event_type="PingTest", now=AT)

        assert verify(recipes()[service], Delivery(headers, BODY), [verifying], at=AT)
        if service == "lago_jwt":
            assert jwt.decode(headers["X-Lago-Signature"], public, ["RS256"]) == {"data": BODY.decode()}
