"""`deliveries forward --follow`: send each delivery that is stored from now on, until Ctrl-C."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import SplitResult

import click

from billhook.cli.output import print_json_line, took
from billhook.cli.params import is_local
from billhook.cli.selection import Selection, confirm, recording
from billhook.errors import InboxUnavailable
from billhook.inbox import Deliveries, DeliveryDetails, Inbox
from billhook.posting import HttpPoster
from billhook.printable import first_line, printable

NO_BODY = {
    "pruned": "past its retention: only the key is left",
    "erased": "erased: only the key is left",
}
"""By the state of a delivery, why there is nothing to send."""
_AWAY = (None, 502, 503, 504)
"""The answers of a receiver, or of a proxy before it, that is not there now."""
_FIRST_WAIT = 0.25
_LONGEST_WAIT = 10.0
_RECORDED_AT_ONCE = 100
"""How many ids are kept until the record of actions has them."""


class Outage:
    """Waits for a database or a receiver, longer each time; prints one line when that begins."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._ended_at = -math.inf

    def wait(self, what: object) -> None:
        """Wait; `what` says who is away, and why."""
        if time.monotonic() - self._ended_at > _LONGEST_WAIT:  # since then all was well
            self._seconds = 0.0
        if not self._seconds:
            click.echo(f"{printable(what)}; waiting for it", err=True)
        self._seconds = min(_LONGEST_WAIT, self._seconds * 2 or _FIRST_WAIT)
        time.sleep(self._seconds)
        self._ended_at = time.monotonic()


def send_new(
    inbox: Inbox,
    selection: Selection,
    signed: Callable[[DeliveryDetails], dict[str, str]],
    poster: HttpPoster,
    url: SplitResult,
) -> None:
    """Send each delivery that is stored from now on, until Ctrl-C, and record that it was done."""
    if selection.asks and not is_local(f"{url.hostname}:{url.port or 443}"):
        confirm(f"Send each new delivery to {url.netloc}?")
    which = " ".join(filter(None, ["--follow", selection.conditions]))
    sent: list[int] = []
    with recording(inbox, "forward", which) as add, suppress(KeyboardInterrupt):
        stream = Deliveries(inbox).follow(selection.filter, on_unavailable=Outage().wait)
        click.echo(f"sending new deliveries to {url.netloc}; Ctrl-C ends it", err=True)
        try:
            for one in stream:
                text = NO_BODY.get(one.summary.state) or _send_one(one, signed, poster, url.netloc)
                summary = one.summary
                line = {"id": summary.id, "type": summary.event_type, "key": summary.key, "result": text}
                if selection.as_json:
                    print_json_line(line)
                else:
                    click.echo(printable(f"{summary.id}  {summary.event_type or '(none)'}  {text}"))
                sent.append(summary.id)
                if len(sent) == _RECORDED_AT_ONCE:
                    with suppress(InboxUnavailable):  # added all the same, and stored by the next call
                        add(len(sent), sent)
                    sent.clear()
        finally:
            add(len(sent), sent)


def _send_one(
    one: DeliveryDetails, signed: Callable[[DeliveryDetails], dict[str, str]], poster: HttpPoster, where: str
) -> str:
    """Send a delivery until there is an answer, signed anew each time; return the answer."""
    outage = Outage()
    while True:
        try:
            headers = signed(one)
        except ValueError as error:
            return f"not sent, it cannot be signed: {first_line(str(error))}"
        reply = poster.post(one.body, headers)
        answer = first_line(reply.body.strip())
        if reply.status not in _AWAY:
            return f"{reply.status} {answer} ({took(reply.seconds)})"
        outage.wait(f"{where} does not take delivery {one.summary.id} ({reply.status or answer})")
