"""Finding deliveries by key and by a text in the body, and `deliveries tail`."""

from __future__ import annotations

import importlib
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from billhook.events import EVENT_TYPES
from billhook.inbox import Deliveries
from support.apps import deliver
from support.inbox_view import incoming, open_inbox, place_of
from support.processes import clean_environment, logged, until
from support.signing import APPROVED
from support.timeouts import scaled

# --- tail -------------------------------------------------------------------------------------------


@pytest.fixture
def once(monkeypatch) -> None:
    """`tail` ends where it would wait, as if by Ctrl-C."""

    def follow(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Deliveries, "follow", follow)


def test_tail_says_what_a_delivery_is_about_before_it_is_planned(run, shop, inbox_url, once):
    inbox = open_inbox(place_of(inbox_url))
    inbox.put(incoming("k5", event_type="InvoiceApproved", body=APPROVED))
    inbox.close()

    shown = [run("deliveries", "tail", "--key", key).stdout for key in ("m2", "k5")]
    planned, received = (re.split("  +", line) for line in shown)

    assert planned[3:] == ["dead", "default", "m2", "inv_1\n"]
    assert received[3:] == ["received", "default", "k5", "inv_1\n"]


def test_the_columns_of_tail_are_aligned_for_every_listed_type(run, shop, once):
    for number, name in enumerate(EVENT_TYPES):
        deliver(shop.app, b"{}", name, message_id=f"of-each-{number}")

    lines = run("deliveries", "tail", "-n", "30").stdout.splitlines()

    assert len(lines) == 4 + len(EVENT_TYPES)
    assert {line.index("  default  ") for line in lines} == {lines[0].index("  default  ")}


def test_tail_escapes_what_is_not_printable(run, inbox_url, once):
    inbox = open_inbox(place_of(inbox_url))
    inbox.put(incoming("m\x1b[31m", event_type=""))
    inbox.close()

    result = run("deliveries", "tail")

    assert re.split("  +", result.stdout)[-4:] == ["(no type)", "quarantined", "default", "m\\x1b[31m\n"]


@pytest.fixture
def tailing(inbox_url: str, tmp_path: Path):
    """A process that runs `deliveries tail`, and what it has printed so far."""
    output = tmp_path / "output.txt"
    command = [sys.executable, "-m", "billhook", "deliveries", "tail"]
    with logged(command, output, env=clean_environment(BILLHOOK_INBOX_URL=inbox_url)) as process:
        yield process, output


@pytest.mark.slow
def test_tail_prints_what_another_process_stores_until_ctrl_c(tailing, inbox_url: str):
    process, output = tailing
    inbox = open_inbox(place_of(inbox_url))
    inbox.put(incoming("m1"))
    until(lambda: "m1" in output.read_text(), 30)

    for number in range(2, 6):
        inbox.put(incoming(f"m{number}"))
        until(lambda: f"m{number}" in output.read_text(), 30)  # noqa: B023 - called at once
    inbox.close()
    process.send_signal(signal.SIGINT)

    assert process.wait(scaled(10)) == 0
    lines = output.read_text().splitlines()
    assert [line.split("  ")[-1] for line in lines] == ["m1", "m2", "m3", "m4", "m5"]


def test_tail_waits_for_an_inbox_that_is_unavailable(run, shop, monkeypatch):
    forward = importlib.import_module("billhook.cli.forward")
    asked: list[int] = []
    pauses: list[float] = []

    def follow(_: Deliveries, __: object, *, after: int, on_unavailable: Callable[[object], None]):
        asked.append(after)
        for _ in range(9):
            on_unavailable("the server\x1b is away")
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(Deliveries, "follow", follow)
    monkeypatch.setattr(forward, "time", SimpleNamespace(sleep=pauses.append, monotonic=lambda: 0.0))

    result = run("deliveries", "tail", "-n", "0")

    assert (result.exit_code, asked) == (0, [4])
    assert result.stderr == "the server\\x1b is away; waiting for it\n"
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]
