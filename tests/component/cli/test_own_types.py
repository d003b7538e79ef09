"""Event types of the user's own: every command knows them, and the header that names them is an option."""

from __future__ import annotations

import json
import sys

import pytest
from flask import Flask

from billhook import Billhook, Source
from billhook.events import EVENT_TYPES, sample
from billhook.extension import get_state
from billhook.signing import BodyHMAC
from billhook.testing import deliver as deliver_signed
from support.apps import bare_app, deliver, inbox_at
from support.inbox_view import rows
from support.receivers import receiving
from support.signing import SECRET

OWN = '''
from decimal import Decimal
from billhook import Handlers
from billhook.events import Event, ExactDecimal

class OrderPlaced(Event, type="order.placed"):
    """An order was placed.

    The rest is for readers of the source.
    """
    order_id: str
    total: ExactDecimal
'''
HANDLER = """
handlers = Handlers()

@handlers.on(OrderPlaced)
def ship(event: OrderPlaced) -> None:
    print("shipped", event.order_id)
"""


@pytest.fixture
def own(tmp_path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return "own.py"


def test_events_lists_own_types_beside_the_others(run, own):
    listed = run("events", own)
    named = run("events", HANDLERS=own)

    assert [listed.exit_code, named.exit_code] == [0, 0]
    assert ["order.placed", "An", "order", "was", "placed."] in [
        line.split() for line in listed.stdout.splitlines()
    ]
    assert (len(EVENT_TYPES), named.stdout) == (24, listed.stdout)
    assert json.loads(run("events", own, "--json").stdout)[-1]["type"] == "order.placed"
    assert "order.placed" in json.loads(run("events", own, "--json-schema").stdout)


def test_events_shows_the_fields_and_a_sample_of_an_own_type(run, own):
    shown = run("events", "order.placed", own)
    as_json = json.loads(run("events", own, "order.placed", "--json").stdout)

    assert shown.stdout.startswith(
        "order.placed: An order was placed.\nsignal: billhook.signals.order_placed\n"
    )
    assert ["total", "number", "yes"] in [line.split() for line in shown.stdout.splitlines()]
    assert as_json["sample"] == {"orderId": "order_id-1", "total": 12.5}


def test_a_type_that_has_no_sample_says_which_field_needs_one(run, tmp_path):
    tmp_path.joinpath("odd.py").write_text(
        "from pydantic import HttpUrl\nfrom billhook.events import Event\nclass Odd(Event):\n home: HttpUrl\n"
    )

    shown = run("events", "Odd", "odd.py")

    assert shown.exit_code == 2
    assert "no sample of Odd can be made (home: Input should be a valid URL" in shown.stderr
    assert "give the field one, Field(examples=[…])" in shown.stderr


@pytest.mark.parametrize("how", ["argument", "option"])
def test_send_signs_a_sample_of_an_own_type_under_the_header_that_is_configured(run, own, how):
    options = {"SECRETS": SECRET, "TYPE_HEADER": "X-Shop-Event"} | (
        {"HANDLERS": own} if how == "option" else {}
    )
    files = [own] if how == "argument" else []

    with receiving() as receiver:
        sent = run("send", "order.placed", *files, "--set", "orderId=7", "--to", receiver.url, **options)

    (got,) = receiver.got
    assert sent.exit_code == 0, sent.output
    assert sent.stderr == ""  # a valid body
    assert json.loads(got.body) == {"orderId": "7", "total": 12.5}
    assert got.headers["x-shop-event"] == "order.placed"
    assert "x-webhook-type" not in got.headers


def test_send_names_the_types_that_it_knows(run, own):
    result = run("send", "order.plced", own, SECRETS=SECRET)

    assert (result.exit_code, "did you mean order.placed?" in result.stderr) == (2, True)


# --- in an app, with a source of its own -----------------------------------------------------------


@pytest.fixture
def shop(tmp_path, own, run):
    (tmp_path / own).write_text(OWN + HANDLER)
    run("events", own)  # which imports it
    module = sys.modules["own"]
    app = bare_app(tmp_path, BILLHOOK_ENGINE="inline", BILLHOOK_TYPE_HEADER="X-Shop-Event")
    hub = BodyHMAC("X-Hub-Signature-256", replay_protection="dedupe-only")
    hooks = Billhook(
        handlers=[module.handlers],
        sources=[
            Source("hub", hub, ["a secret of the hub's own"], type_header="X-Hub-Event"),
            Source("plain", secrets=[SECRET]),
        ],
    )
    hooks.init_app(app)
    yield app
    get_state(app).close()


def types(app: Flask) -> list[tuple[object, ...]]:
    return rows(inbox_at(app), "SELECT source, event_type, state FROM delivery ORDER BY id")


def test_each_source_reads_the_type_from_its_header(shop, capsys):
    model = EVENT_TYPES["order.placed"]
    statuses = [
        deliver_signed(shop, sample(model, order_id="7"), source=source).status
        for source in ("default", "hub", "plain")
    ]
    deliver(shop, sample(model).to_json(), "order.placed")  # under X-Webhook-Type, which no source has

    assert statuses == [200, 200, 200]
    assert [name for _, name, _ in types(shop)] == ["order.placed"] * 3 + [""]
    assert capsys.readouterr().out.count("shipped 7") == 3


def test_check_send_and_forward_use_the_headers_of_the_sources(shop, secret_file):
    def invoke(*arguments: str):
        return shop.test_cli_runner().invoke(args=["billhook", *arguments])

    checked = json.loads(invoke("check", "--json").stdout)["checks"]
    sent = [invoke("send", "order.placed", "--source", source) for source in ("default", "hub", "plain")]
    with receiving() as receiver:
        where = ("--to", receiver.url, "--secret-file", secret_file(SECRET), "--yes")
        forwarded = invoke("deliveries", "forward", "--since", "1h", *where)

    assert [each["ok"] for each in checked if each["what"].startswith("POST")] == [True] * 3
    assert [each.exit_code for each in (*sent, forwarded)] == [0, 0, 0, 0]
    assert [name for _, name, _ in types(shop)] == ["order.placed"] * 3
    named = [name for got in receiver.got for name in got.headers if name.endswith("-event")]
    assert named == ["x-shop-event", "x-hub-event", "x-shop-event"]
