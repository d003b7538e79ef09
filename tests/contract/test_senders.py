"""Each recipe for a sender receives what that sender's own package signed, or verifies.

`support.sender_packages` says how the recordings were made, and how to make them anew.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
from flask import Flask

from billhook import Billhook, Delivery, Handlers
from billhook.clock import FrozenClock
from billhook.events import Event, UnknownEvent
from billhook.extension import default_source, get_state
from billhook.inbox import Deliveries, DeliveryFilter
from billhook.settings import Settings
from billhook.signing import Scheme
from billhook.testing import handled, options, prepare, settle
from support.sender_packages import Recording, differences, play
from support.sender_recipes import BEGIN, BLOCKS, CHALLENGE, END, PAGE, RECORDINGS, SOURCES, receiver

NAMES = sorted(RECORDINGS)
SIGNS_AN_ID, SIGNS_THE_TIME = {"acme", "svix"}, {"stripe", "slack", "paddle"}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """All recipes in one file, as a reader with many senders has it."""
    with receiver(tmp_path_factory.mktemp("senders"), *NAMES) as module:
        yield module


@pytest.fixture(scope="module")
def clock(module: ModuleType) -> FrozenClock:
    """The clock of the module's app, which the page's last block makes."""
    return prepare(module.app)


@pytest.fixture
def app(module: ModuleType, clock: FrozenClock) -> Flask:
    """The app, at the time of the recordings; each test has a sender, or a body, to itself."""
    (at,) = {one.moment for one in RECORDINGS.values()}
    clock.advance(seconds=(at - clock.now()).total_seconds())
    return module.app


def handler_of(app: Flask, one: Recording) -> str:
    (handler,) = (each.name for each in get_state(app).handlers.every() if one.name in each.sources)
    return handler


def post(app: Flask, one: Recording, body: str | None = None, **headers: str) -> tuple[int, Any]:
    """Post what is recorded, or another body or header with it."""
    data = (one.body if body is None else body).encode()
    with app.test_client() as client:
        answer = client.post(f"/webhooks/{one.name}", data=data, headers={**one.headers, **headers})
        return answer.status_code, answer.get_json(silent=True) or answer.text


def signed(
    one: Recording, body: str, later: timedelta = timedelta(), scheme: Scheme | None = None
) -> Recording:
    """What this sender sends with another body, or later: the recorded headers, signed anew."""
    message_id = one.headers.get("webhook-id") or one.headers.get("svix-id")
    made = (scheme or SOURCES[one.name].scheme).sign(
        body.encode(),
        one.secret,
        event_type=one.event_type,
        now=one.moment + later,
        message_id=message_id and message_id + ("" if body == one.body else "_2"),
    )
    return replace(one, body=body, headers={**one.headers, **made})


def test_each_recipe_has_a_recording():
    assert BLOCKS.keys() - {BEGIN, END, CHALLENGE} == RECORDINGS.keys()
    assert len(RECORDINGS) == 9


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_handles_what_the_senders_package_signed_and_nothing_else(app, capsys, name):
    one = RECORDINGS[name]

    assert post(app, one, one.changed)[0] == 401
    assert settle(app) == 0
    assert post(app, one) == (200, {"status": "accepted"})
    assert settle(app) == 1

    assert capsys.readouterr().out == f"{one.prints}\n"
    (event,) = handled(app, handler_of(app, one))
    assert event.type == one.event_type


@pytest.mark.parametrize("name", NAMES)
def test_billhook_signs_what_the_senders_package_does(name):
    one = RECORDINGS[name]

    assert signed(one, one.body) == one


@pytest.mark.parametrize("name", NAMES)
def test_an_event_that_is_sent_again_is_handled_once(app, clock, capsys, name):
    one = RECORDINGS[name]
    body = one.body.replace("42", "77")
    later = timedelta(minutes=50)

    assert post(app, signed(one, body)) == (200, {"status": "accepted"})
    settle(app)
    clock.advance(seconds=later.total_seconds())
    status = "accepted" if name in SIGNS_THE_TIME else "duplicate"
    assert post(app, signed(one, body, later)) == (200, {"status": status})
    settle(app)

    assert capsys.readouterr().out == one.prints.replace("42", "77") + "\n"


def test_the_options_of_the_page_describe_the_same_source():
    rows = re.findall(r"^\| ([\w ]+) \| ((?:`BILLHOOK_\w+=\S*` ?)+)\|$", PAGE, re.MULTILINE)
    named = {sender.lower().replace(" ", ""): options for sender, options in rows}
    named["acme"] = named.pop("standardwebhooks")

    assert named.keys() == {"acme", "stripe", "github", "lemonsqueezy", "paystack"}
    for name, listed in named.items():
        one, source = RECORDINGS[name], SOURCES[name]
        given = dict(each.split("=", 1) for each in re.findall(r"`(\S+)`", listed))
        made = default_source(Settings.from_mapping({**given, "BILLHOOK_SECRETS": [one.secret]}))
        assert (made.type_field, made.type_header) == (source.type_field, source.type_header)
        assert made.scheme.headers == source.scheme.headers
        assert signed(one, one.body, scheme=made.scheme) == one


@pytest.mark.parametrize("name", NAMES)
def test_the_command_sends_an_event_as_the_sender(app, clock, name):
    one = RECORDINGS[name]
    clock.advance(seconds=(datetime.now(UTC) - clock.now()).total_seconds())
    before = len(handled(app, handler_of(app, one)))

    done = app.test_cli_runner().invoke(args=["billhook", "send", one.event_type, "--source", name])
    settle(app)

    assert '200 {"status": "accepted"}' in done.output
    assert len(handled(app, handler_of(app, one))) == before + 1


def test_the_pages_command_plays_the_sender(app, clock, capsys):
    (command,) = re.findall(r"^\$ flask --app receiver (.* send .*) --to \S+$", PAGE, re.MULTILINE)
    clock.advance(seconds=(datetime.now(UTC) - clock.now()).total_seconds())

    done = app.test_cli_runner().invoke(args=shlex.split(command))
    settle(app)

    assert '200 {"status": "accepted"}' in done.output
    assert capsys.readouterr().out.startswith("stripe: ")


def test_slacks_challenge_is_answered_if_slack_signed_it(app):
    challenge = '{"token":"not-a-token","challenge":"3eZbrw1aBm2rZgRNFdxV","type":"url_verification"}'
    asked = signed(RECORDINGS["slack"], challenge)

    assert post(app, asked) == (200, "3eZbrw1aBm2rZgRNFdxV")
    status, answer = post(app, asked, challenge.replace("3eZ", "4eZ"))
    assert status == 401
    assert "eZbrw" not in str(answer)
    settle(app)
    asked_for = DeliveryFilter(source="slack", state="quarantined")
    (stored,) = Deliveries(get_state(app).inbox).find(asked_for)
    (command,) = re.findall(r"`flask --app receiver (billhook deliveries discard ID .*?)`", PAGE)
    command = command.replace("ID", str(stored.summary.id))
    discarded = app.test_cli_runner().invoke(args=shlex.split(command), input="y\n")
    assert discarded.exit_code == 0, discarded.output


def test_an_order_that_is_sent_under_two_topics_needs_a_source_for_each(tmp_path):
    created, handlers, calls = RECORDINGS["shopify"], Handlers(), []
    shopify = SOURCES[created.name]
    paid = replace(created, headers={**created.headers, "X-Shopify-Topic": "orders/paid"})

    @handlers.on_any()
    def note(event: Event | UnknownEvent, delivery: Delivery) -> None:
        calls.append((delivery.source, event.type))

    app = Flask("shop")
    app.config.update(options(tmp_path))
    sources = [shopify, replace(shopify, name="shopify-paid")]
    Billhook(handlers=[handlers], sources=sources).init_app(app, url_prefix="/webhooks")
    prepare(app)
    for sent in (created, paid, replace(paid, name="shopify-paid")):
        assert post(app, sent) == (200, {"status": "accepted"})
    settle(app)

    # In any order: a type that a recipe has declared is read before it is handled.
    assert sorted(calls) == [("shopify", "orders/create"), ("shopify-paid", "orders/paid")]
    assert Deliveries(get_state(app).inbox).count(DeliveryFilter(conflicts=True)) == 1


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_packages_sign_and_verify_what_is_recorded(tmp_path):
    answers = play(tmp_path, RECORDINGS)

    assert {name: said["version"] for name, said in answers.items()} == {
        name: one.version for name, one in RECORDINGS.items()
    }
    assert differences(RECORDINGS, answers) == []


def test_control_a_package_that_signs_otherwise_or_verifies_a_changed_body_is_noticed():
    one = RECORDINGS["stripe"]
    said = {"version": "1", "signed": dict(one.headers), "verified": True, "verified_changed": False}

    for name, wrong in (
        ("signed", {"Stripe-Signature": "t=1"}),
        ("verified", False),
        ("verified_changed", True),
    ):
        (found,) = differences({"stripe": one}, {"stripe": {**said, name: wrong}})
        assert found.startswith("stripe: stripe 1 ")
    assert differences({"stripe": one}, {"stripe": said}) == []
    assert "is signed by package" in differences({"stripe": one}, {"stripe": {**said, "signed": None}})[0]
