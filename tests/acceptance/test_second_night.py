"""A second night on call: from the first sentence of `billhook status` to the cause, command by command.

No message is sent of most of these incidents: an operator looks, and has the first sentence, which the
dashboard has too, and what each command says to which the one before has led.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from billhook.events import InvoiceApproved, PaymentFailed, sample
from billhook.inbox.tables.schema import delivery, run
from support.acceptance.night import Night, night_on
from support.acceptance.stack import UP_SECONDS
from support.inbox_view import open_inbox
from support.processes import until
from support.proxy import proxied
from support.server import request
from support.signing import PATH, signed
from support.templates import new_inbox

LONG_AGO = timedelta(minutes=25)


@dataclass(frozen=True)
class Scene:
    """What is done, the first sentence then, and each further command with what it says of the cause."""

    do: Callable[[Night], object]
    sentence: str
    commands: tuple[tuple[str, str], ...] = ()
    on: str = "sqlite"


def send(night: Night, word: str, number: int = 1, **more: str) -> None:
    assert set(night.send(*(f"{word}-{each}" for each in range(number)), **more)) == {200}  # type: ignore[arg-type]


def pay(night: Night, word: str, *currencies: str) -> None:
    for number, currency in enumerate(currencies):
        body = sample(PaymentFailed, currency=currency, customer_id=f"cus_{word}_{number}").to_json()
        assert night.send(f"{word}-{number}", event_type="PaymentFailed", body=body) == [200]


def make_older(night: Night) -> None:
    """Have all that is stored have happened 25 minutes earlier."""
    at = datetime.now(UTC) - LONG_AGO
    with contextlib.closing(open_inbox(night.where)) as inbox, inbox.database.write() as connection:
        connection.execute(update(delivery).values(received_at=at, signed_at=at))
        connection.execute(update(run).values(started_at=at))


def settled(night: Night, number: int) -> None:
    """Wait until this number of attempts have ended."""
    until(lambda: night.value("SELECT count(*) FROM run WHERE duration_seconds IS NOT NULL") == number, 60)


def one_call_hangs(night: Night) -> None:
    send(night, "hangs")
    until(lambda: night.value("SELECT count(*) FROM run WHERE state = 'running'") == 1, 60)
    send(night, "good", 5)
    settled(night, 5)
    make_older(night)


def all_threads_hang(night: Night) -> None:
    send(night, "hangs", 8)
    until(lambda: night.value("SELECT count(*) FROM run WHERE state = 'running'") == 8, 60)
    send(night, "good", 5)
    make_older(night)


def one_currency_fails(night: Night) -> None:
    pay(night, "p", *(["USD", "EUR", "EUR", "EUR"] * 5))
    settled(night, 20)


def ledger_is_down(night: Night) -> None:
    send(night, "down", 8)
    settled(night, 8)


def clock_is_wrong(night: Night) -> None:
    """Have deliveries come as to a machine that is ten minutes ahead."""
    at = datetime.now(UTC) - timedelta(minutes=10)
    body = sample(InvoiceApproved).to_json()
    late = request(body, signed(body, "InvoiceApproved", at=at), path=PATH)
    assert [night._line.send(late).status for _ in range(6)] == [401] * 6
    _wait_for_refusals(night, "stale")


def proxy_writes_bodies_anew(night: Night) -> None:
    body = sample(InvoiceApproved).to_json()
    changed = request(json.dumps(json.loads(body)).encode(), signed(body, "InvoiceApproved"), path=PATH)
    assert [night._line.send(changed).status for _ in range(8)] == [401] * 8
    _wait_for_refusals(night, "mismatch")


def _wait_for_refusals(night: Night, cause: str) -> None:
    until(lambda: cause in str(night.command("status", "--json")["refused"]), 60)


def deploy_lacks_a_handler(night: Night) -> None:
    pay(night, "before", "EUR", "EUR")
    night.drain()
    night.units.pop().stop(in_order=True)
    unit = night.start_unit(NIGHT_LACKS_DUN="1")
    until(lambda: unit.process.says("worker started with"), UP_SECONDS)
    pay(night, "after", "EUR", "EUR", "EUR")
    night.drain()


def worker_is_held_and_forgotten(night: Night) -> None:
    (worker,) = night.command("workers", "--json")
    night.command("workers", "hold", f"{worker['host']}:{worker['pid']}")
    send(night, "good", 3)


def handler_is_paused_and_forgotten(night: Night) -> None:
    night.command("handlers", "pause", "book", "--reason", "the ledger is closed")
    send(night, "good", 3)


def run_is_postponed_for_a_week(night: Night) -> None:
    send(night, "later")
    settled(night, 1)
    make_older(night)


def database_restarts(night: Night) -> None:
    send(night, "before", 5)
    assert night.proxy is not None
    night.proxy.cut()
    until(lambda: night.ask("/readyz") == 200, 60)
    send(night, "after", 5)
    night.drain()


WELL = r"All is well: nothing fails and nothing waits for long\."
SCENES = {
    "one call hangs": Scene(
        one_call_hangs, r"1 call of book has not returned for 25 min",
        (("workers", r"book of delivery 1, since 25 min ago"), ("doctor", "timeout_seconds")),
    ),
    "all threads hang": Scene(
        all_threads_hang, r"8 calls of book have not returned, the oldest for 25 min.*waited for a worker",
        (("workers", r"book of delivery 1, since 25 min ago"),),
    ),
    "one currency fails": Scene(
        one_currency_fails, "dun fails: KeyError",
        (("failures", "KeyError: 'USD'"), ("failures show ISSUE", r"currency +USD +5 of 5 +0 of 15")),
    ),
    "a called service is down": Scene(
        ledger_is_down, "book fails: ConnectionError",
        (("failures", "ledger.internal: no route to host"),),
    ),
    "the clock is wrong by ten minutes": Scene(
        clock_is_wrong, r"6 genuine deliveries were refused: the signed time is 60\d s behind this clock",
        (("doctor", "compare the clocks"),),
    ),
    "a proxy writes bodies anew": Scene(
        proxy_writes_bodies_anew, "No delivery has been stored yet: 8 signatures matched no secret",
        (("doctor", "something between the service and here(.|\n)*billhook capture"),),
    ),
    "a deployment lacks a handler": Scene(
        deploy_lacks_a_handler,
        "no process has dun any more, and 3 deliveries of PaymentFailed got no handler",
        (("failures", "no process has dun any more"), ("failures show ISSUE", "--without-handler dun")),
    ),
    "a worker is held and forgotten": Scene(
        worker_is_held_and_forgotten, "the only worker is held, and starts no run",
        (("workers", "held"), ("actions", "hold")),
    ),
    "a handler is paused and forgotten": Scene(
        handler_is_paused_and_forgotten, "1 handler is paused", (("doctor", "the ledger is closed"),),
    ),
    "a run is postponed for a week": Scene(
        run_is_postponed_for_a_week, WELL, (("deliveries list", "not before"),),
    ),
    "PostgreSQL restarts": Scene(database_restarts, WELL, on="proxy"),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "one call hangs" else pytest.mark.long)
        for name in SCENES
    ],
)
def test_the_first_sentence_leads_to_the_cause(tmp_path, request, name):
    scene = SCENES[name]
    with contextlib.ExitStack() as kept:
        url, proxy = f"sqlite:///{tmp_path / 'billhook.db'}", None
        if scene.on == "proxy":
            url = request.getfixturevalue("postgres_url")
        url = new_inbox(url)
        if scene.on == "proxy":
            proxy = kept.enter_context(proxied(url))
        night = kept.enter_context(night_on(tmp_path, url if proxy is None else proxy.url))
        night.proxy = proxy
        night.environment["COLUMNS"] = "300"  # a wide terminal, where nothing is cut
        night.begin()
        unit = night.start_unit()
        until(lambda: unit.process.says("worker started with"), UP_SECONDS)

        scene.do(night)

        # A failure is an issue within ten seconds.
        until(lambda: re.search(scene.sentence, " ".join(night.command("status").split())), 30)
        page = " ".join(re.sub(r"<[^>]+>", " ", night.page()).split())
        assert re.search(scene.sentence.replace("'", "&#39;"), page), page[:2_000]
        for command, says in scene.commands:
            if "ISSUE" in command:
                (issue,) = night.command("failures", "list", "--json")
                command = command.replace("ISSUE", issue["id"])
            said = night.command(*command.split())
            assert re.search(says, said), said
