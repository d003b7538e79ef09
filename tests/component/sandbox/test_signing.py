"""Deliveries are signed so that a receiver takes them, and the secret is told to nobody else."""

from __future__ import annotations

import base64
import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from billhook.errors import ConfigError
from billhook.events import EVENT_TYPES, Event, parse_event, sample
from billhook.sandbox import Sandbox, SandboxOptions
from billhook.sandbox.webhooks.signing_secrets import Secret, Signer, for_receivers, new_secret
from billhook.signing import (
    BodyHMAC,
    Scheme,
    SignatureTemplate,
    StandardWebhooks,
    TimestampedHMAC,
    TimestampedRSA,
)
from support.receivers import (
    billhook_receiver,
    deliveries,
    delivery,
    errors,
    flush,
    receiving,
    subscribe,
    trigger,
)
from support.sandbox import INVALID, START, running

WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(b"another secret of 27 bytes!").decode()
WHSK = "whsk_" + base64.b64encode(b"\x07" * 32).decode()
BODY_ONLY = BodyHMAC("X-Signature", replay_protection="dedupe-only")
ED25519 = SignatureTemplate(content="{id}|{timestamp}|{body}", algorithm="ed25519", encoding="base64")

STANDARD = StandardWebhooks()
OVERLAPPING = [STANDARD, TimestampedHMAC()]
KEY_NAMED = TimestampedRSA(key_id_header="X-Webhook-Key-Id")
SINGLE = [
    TimestampedRSA(),
    KEY_NAMED,
    BODY_ONLY,
    SignatureTemplate(),
    SignatureTemplate(secret_encoding="hex"),
    SignatureTemplate(secret_encoding="base64"),
    ED25519,
]
OF_EACH_KIND = [STANDARD, KEY_NAMED, ED25519]
"""One whose secret is a text, a pair whose key is named, and a pair whose key is not."""


def sample_of_now(event_type: str) -> Event:
    """What a trigger raises while the clock stands."""
    model = EVENT_TYPES[event_type]
    return sample(model, date=START) if "date" in model.model_fields else sample(model)


def test_events_every_type_is_taken_by_a_receiver_and_is_the_event_that_was_raised(tmp_path: Path) -> None:
    """Source: spec, "Events", rule 3, and the table."""
    with (
        running(secrets=[WHSEC]) as sandbox,
        billhook_receiver(tmp_path, STANDARD, [WHSEC], sandbox.real) as receiver,
    ):
        for event_type in EVENT_TYPES:
            subscribe(sandbox, event_type, receiver.url)
            trigger(sandbox, event_type)
        assert flush(sandbox, 60)["pending"] == 0
        raised = {event_type: body for _, event_type, body in receiver.stored()}
        states = {(one["eventType"], one["state"]) for one in deliveries(sandbox)}

    wanted = {name: sample_of_now(name) for name in EVENT_TYPES}
    assert receiver.statuses == [200] * 24  # each of them, and the ping that a subscription brings
    assert states == {(event_type, "delivered") for event_type in EVENT_TYPES}
    assert raised == {name: event.to_json() for name, event in wanted.items()}
    assert {name: parse_event(name, body) for name, body in raised.items()} == wanted


@pytest.mark.parametrize(
    ("scheme", "secret"), [*((each, None) for each in (*OVERLAPPING, *SINGLE)), (STANDARD, WHSK)], ids=repr
)
def test_an_event_is_taken_by_a_receiver_under_each_scheme(
    scheme: Scheme, secret: Secret | None, tmp_path: Path
) -> None:
    """Source: spec, "Events", rule 3."""
    secret = secret or new_secret(scheme)
    with (
        running(scheme=scheme, secrets=[secret]) as sandbox,
        billhook_receiver(tmp_path, scheme, [for_receivers(scheme, secret)], sandbox.real) as receiver,
    ):
        subscribe(sandbox, "InvoiceApproved", receiver.url)
        trigger(sandbox, "InvoiceApproved")
        flush(sandbox)
        [(_, event_type, body)] = receiver.stored()

    assert receiver.statuses == [200]
    assert (event_type, body) == ("InvoiceApproved", sample_of_now("InvoiceApproved").to_json())


@pytest.mark.parametrize(("secret", "status"), [(WHSEC, 200), (OTHER, 401)], ids=["own", "another"])
def test_deliveries_are_signed_by_the_machines_time_and_a_receiver_with_another_secret_takes_none(
    tmp_path: Path, secret: str, status: int
) -> None:
    with (
        running(secrets=[WHSEC]) as sandbox,
        billhook_receiver(tmp_path, STANDARD, [secret], sandbox.real) as receiver,
    ):
        sandbox.advance("P30D")  # of the sandbox's own clock
        subscribe(sandbox, "PingTest", receiver.url)
        flush(sandbox)

        assert (receiver.statuses, len(receiver.stored())) == ([status], status == 200)
        assert delivery(sandbox)["attempts"][0]["status"] == status


@pytest.mark.parametrize("scheme", OF_EACH_KIND, ids=repr)
def test_without_a_secret_one_is_made_that_stays_and_a_receiver_verifies_with_what_is_shown(
    scheme: Any, sandbox_url: str, tmp_path: Path
) -> None:
    with running(scheme=scheme, database_url=sandbox_url) as sandbox:
        made = sandbox.sandbox.signing_secret
    with running(scheme=scheme, database_url=sandbox_url) as sandbox:
        kept = sandbox.sandbox.signing_secret
        rotated = sandbox.ok("POST", "/_sandbox/secrets/rotate", {})
        secret = rotated["signingSecret"]
        secret = {rotated["keyId"]: secret} if "keyId" in rotated else secret
        assert sandbox.sandbox.signing_secret == secret
        with billhook_receiver(tmp_path, scheme, [secret], sandbox.real) as receiver:
            subscribe(sandbox, "PingTest", receiver.url)
            flush(sandbox)

            assert receiver.statuses == [200]
    assert kept == made
    assert len(scheme.load([made])) == 1
    assert not any(private in str(made) for private in ("PRIVATE", "whsk_"))


def test_has_public_key_is_true_for_key_pairs() -> None:
    found = []
    for scheme, secret in ((STANDARD, WHSEC), (STANDARD, WHSK), (KEY_NAMED, None), (BODY_ONLY, None)):
        with closing(Sandbox(SandboxOptions(scheme=scheme, secrets=[secret] if secret else []))) as sandbox:
            found.append(sandbox.has_public_key)

    assert found == [False, True, True, False]


def test_secrets_that_cannot_sign_and_times_that_cannot_be_are_refused_at_the_start() -> None:
    of_times = "delivery_timeout_seconds must be over 0, and no retry_seconds"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"secrets": ["short"]}, "not valid base64|too short"),
        ({"secrets": ["whpk_" + base64.b64encode(b"x" * 32).decode()]}, "whsk_"),
        ({"delivery_timeout_seconds": 0}, of_times),
        ({"retry_seconds": (1, -1)}, of_times),
    ]

    for options, said in wrong:
        with pytest.raises(ConfigError, match=said):
            Sandbox(SandboxOptions(**options))


@pytest.mark.parametrize(("overlap", "statuses"), [(True, [200, 200]), (False, [401, 200])])
@pytest.mark.parametrize("scheme", OVERLAPPING, ids=repr)
def test_after_a_rotation_the_new_secret_verifies_and_with_overlap_the_old_one_too(
    scheme: Any, overlap: bool, statuses: list[int], tmp_path: Path
) -> None:
    with running(scheme=scheme, secrets=[WHSEC], retry_seconds=(1,)) as sandbox:
        new = sandbox.ok("POST", "/_sandbox/secrets/rotate", {"overlap": overlap})["signingSecret"]
        found = []
        for number, secret in enumerate([WHSEC, new]):
            folder = tmp_path / str(number)
            folder.mkdir()
            with billhook_receiver(folder, scheme, [secret], sandbox.real) as receiver:
                subscribe(sandbox, "PingTest", receiver.url)
                flush(sandbox)
                found += receiver.statuses

    assert found == statuses


@pytest.mark.parametrize("scheme", [KEY_NAMED, BODY_ONLY, SignatureTemplate()], ids=repr)
def test_rotation_of_a_single_signature_scheme_reports_no_overlap(scheme: Any) -> None:
    with running(scheme=scheme) as sandbox:
        before = sandbox.sandbox.signing_secret
        answer = sandbox.call("POST", "/_sandbox/secrets/rotate", {"overlap": True})
        unchanged = sandbox.sandbox.signing_secret
        rotated = sandbox.ok("POST", "/_sandbox/secrets/rotate", {"overlap": False})

    assert answer.error() == INVALID
    assert (answer.json["param"], "one signature only" in answer.json["message"]) == ("overlap", True)
    assert unchanged == before
    assert rotated["signingSecret"] != before
    assert ("keyId" in rotated) == ("Key-Id" in repr(scheme))


def test_a_rotation_outlasts_a_restart_and_ends_when_secrets_are_given(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sandbox.db'}"
    with running(database_url=url) as sandbox:
        new = sandbox.ok("POST", "/_sandbox/secrets/rotate", {})["signingSecret"]
    with running(database_url=url) as again:
        assert again.sandbox.signing_secret == new
    with running(database_url=url, secrets=[WHSEC]) as given:
        assert given.sandbox.signing_secret == WHSEC
        rotated = given.ok("POST", "/_sandbox/secrets/rotate", {"overlap": True})["signingSecret"]
        assert given.sandbox.signing_secret == rotated
    with running(database_url=url, secrets=[WHSEC]) as given:
        assert given.sandbox.signing_secret == WHSEC

    assert WHSEC.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_a_delivery_that_cannot_be_signed_fails_with_not_signed() -> None:
    scheme = SignatureTemplate(content="{type}P{body}.{timestamp}")
    with running(scheme=scheme, secrets=[WHSEC]) as sandbox, receiving() as receiver:
        subscribe(sandbox, "PingTest", receiver.url)  # its P could be the separator
        flush(sandbox)

        assert errors(delivery(sandbox)) == ["not_signed"]
    assert receiver.got == []


def test_a_secret_in_a_receivers_answer_is_redacted_also_without_its_prefix() -> None:
    with running(secrets=[WHSEC], retry_seconds=(1,)) as sandbox, receiving(401) as receiver:
        receiver.headers = {"Content-Type": "text/plain"}
        receiver.body = f"not signed with {WHSEC.removeprefix('whsec_')}".encode()
        sandbox.ok("POST", "/_sandbox/faults", {"fault": "wrong_secret"})
        subscribe(sandbox, "PingTest", receiver.url)
        flush(sandbox)

        assert delivery(sandbox)["attempts"][0]["answer"] == "not signed with [secret]"


def test_a_signing_secret_is_in_no_log_repr_error_list_or_page(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    seen = []
    with running(retry_seconds=(1,)) as sandbox, receiving(500) as receiver:
        sandbox.ok("POST", "/_sandbox/secrets/rotate", {"overlap": True})
        secrets = [str(sandbox.sandbox.signing_secret)]
        secrets.append(sandbox.ok("POST", "/_sandbox/secrets/rotate", {"overlap": True})["signingSecret"])
        receiver.headers = {"Content-Type": "text/plain"}
        receiver.body = f"you signed with {secrets[0]} and {secrets[1]}".encode()  # it tells them back
        subscribe(sandbox, "PingTest", receiver.url)
        flush(sandbox)
        answers = [delivery(sandbox)["attempts"][0]["answer"]]
        lists = ("deliveries", "raised", "subscriptions", "faults")
        seen += [sandbox.call("GET", f"/_sandbox/{name}").body.decode() for name in lists]
        seen += [sandbox.call("POST", "/_sandbox/secrets/rotate", {"overlap": "yes"}).body.decode()]
        seen += [
            repr(sandbox.sandbox),
            repr(sandbox.sandbox.options),
            repr(Signer(StandardWebhooks(), secrets)),
        ]

    everything = "\n".join([*seen, caplog.text])
    assert receiver.got[0].headers["webhook-signature"].count("v1,") == 2  # the oldest signs no more
    assert answers == ["you signed with [secret] and [secret]"]
    assert [secret for secret in secrets if secret in everything] == []
    assert all(seen)  # or nothing would be proved
