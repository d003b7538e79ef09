"""`billhook deliveries forward`: sign deliveries anew and send them to another receiver; new ones, too."""

from __future__ import annotations

import base64
import math
import shlex
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from itertools import chain
from secrets import token_hex
from urllib.parse import urlsplit

import click

from billhook.basics.printable import counted, first_line, printable
from billhook.cli.context import open_inbox, user_app
from billhook.cli.output import print_json_line, progress, say, took
from billhook.cli.params import SECRET_FILE, flag, is_local, option
from billhook.cli.selection import RATE, Found, Selection, confirm, confirming, recording, selecting
from billhook.cli.send import SCHEME, TIMEOUT, parse_target, print_answers, signing_settings
from billhook.errors import ConfigError, InboxUnavailable
from billhook.extension import configured_scheme
from billhook.inbox import Deliveries, DeliveryDetails, Inbox
from billhook.inbox.reading.deliveries import details
from billhook.posting import HttpPoster, sign
from billhook.receiver.blueprint import webhook_routes
from billhook.settings import read_secrets_file

_MOST_WITHOUT_ANSWER = 10
_MOST_ANSWERS = 50
"""How many different answers are counted one by one; a receiver's answers may all differ."""
_LONGEST_ARGUMENT = 100_000
"""Bytes of a body in an argument of curl: Linux refuses one of 128 KiB."""
NO_BODY = {"pruned": "past its retention: only the key is left", "erased": "erased: only the key is left"}
"""By the state of a delivery, why there is nothing to send."""
_AWAY = (None, 502, 503, 504)
"""The answers of a receiver, or of a proxy before it, that is not there now."""
_FIRST_WAIT = 0.25
_LONGEST_WAIT = 10.0
_RECORDED_AT_ONCE = 100
"""How many ids are kept until the record of actions has them."""


@click.command(short_help="Send deliveries to another receiver.")
@selecting(ids=True, other="follow")
@option("--to URL url", "The receiver's URL, with http:// or https://.", required=True)
@option(
    "--secret-file",
    "A file with the secret that this receiver knows (for timestamped-rsa: the private key).",
    SECRET_FILE,
    required=True,
)
@SCHEME
@flag("--curl", "Print each as a command of curl, signed now, and send nothing.")
@flag(
    "--follow",
    "Send each delivery that is stored from now on, until Ctrl-C: to the app on your machine.",
    default=None,
)
@flag("--new-ids", "Send each under a new id, for a receiver that has had it.")
@RATE
@TIMEOUT
@confirming
def forward(
    selection: Selection,
    url: str,
    secret_file: str,
    scheme: str | None,
    curl: bool,
    follow: bool | None,
    new_ids: bool,
    timeout: float,
) -> None:
    """Send stored deliveries to another receiver, signed anew: staging, or your own machine.

    Sends type and body of those given by ID, or those that the options select, oldest first. Each keeps its
    id, so that the receiver knows it when it is sent again. They hold customers' data: use https outside
    your machine. Exit code 1 unless every answer is 2xx.

    With --follow it prints a line for each new delivery and its answer. It waits for a database or a receiver
    that is away, or that answers 502, 503 or 504, and sends what was stored meanwhile. It changes no delivery
    and calls no handler; `billhook actions` lists it.

    \b
    Examples:
      billhook deliveries forward 42 --to http://127.0.0.1:8001/webhooks/billing --secret-file own.txt
      billhook deliveries forward 42 --curl --to http://127.0.0.1:8001/webhooks/billing --secret-file own.txt
      billhook deliveries forward --since 1h --rate 5 --to https://staging.example/hooks --secret-file own.txt
      billhook deliveries forward --follow --to http://127.0.0.1:5000/webhooks/billing --secret-file own.txt
    """
    _check(selection, curl=curl, follow=follow)
    secrets = read_secrets_file(secret_file, "--secret-file")
    if not secrets:
        raise ConfigError("--secret-file holds no secret: write it into the file, one a line")
    settings = signing_settings(scheme)
    signer = configured_scheme(settings)
    # The header of the type is that of the app's source by this name, or the default.
    app, default = user_app(), settings.type_header
    sources = [] if app is None else [route.source for route in webhook_routes(app)]
    named = {each.name: each.type_header or default for each in sources}
    salt = token_hex(16) if new_ids else None
    with HttpPoster(parse_target(url), timeout) as poster, open_inbox() as inbox:
        headers = defaultdict(lambda: default, named)
        sender = _Forwarder(poster, url, partial(sign, signer, secrets[0]), salt, headers, is_curl=curl)
        if follow:
            sender.follow(inbox, selection)
            return
        found = selection.find(inbox, "" if curl else f"Send {{}} to {urlsplit(url).netloc}?")
        if curl:  # it prints bodies, and is recorded like sending them
            found = found._replace(which=f"--curl {found.which}")
        if not selection.dry_run:
            sender.send(inbox, found)
    sender.report(selection, found.total)
    if sender.has_failed:
        sys.exit(1)


def _check(selection: Selection, *, curl: bool, follow: bool | None) -> None:
    """Raise UsageError for options that do not go together."""
    new = replace(
        selection.filter, event_type=None, source=None, key=None, contains=None, conflicts=False
    ).is_everything
    if follow and (selection.ids or selection.dry_run or curl or selection.rate is not None or not new):
        raise click.UsageError(
            "--follow sends what is stored from now on: leave out ID, --dry-run, --rate, --curl, --state, "
            "--error, --search, --issue, --since, --until and --handler"
        )
    if curl and selection.as_json:
        raise click.UsageError("--curl prints commands for a shell: leave out --json")


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
            say(f"{printable(what)}; waiting for it")
        self._seconds = min(_LONGEST_WAIT, self._seconds * 2 or _FIRST_WAIT)
        time.sleep(self._seconds)
        self._ended_at = time.monotonic()


@dataclass
class _Forwarder:
    """Signs deliveries anew and sends them; counts the answers, and the deliveries that could not be sent."""

    poster: HttpPoster
    url: str
    sign: Callable[..., dict[str, str]]
    salt: str | None
    """Makes new ids: the same for the same salt, so that a second try is a duplicate."""
    type_headers: Mapping[str, str]
    """By the name of the source."""
    is_curl: bool
    """Whether each is printed as a command, and nothing is sent."""
    answers: Counter[tuple[int | None, str]] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    stopped_at: int | None = None
    _without_answer: int = 0

    @property
    def has_failed(self) -> bool:
        """Whether a delivery was not taken."""
        refused = any(status is None or not 200 <= status < 300 for status, _ in self.answers)
        return refused or self.skipped.total() > 0 or self.stopped_at is not None

    def _headers(self, delivery: DeliveryDetails) -> dict[str, str]:
        """Return the headers of a delivery, signed now. Raises ValueError for what the scheme cannot sign."""
        summary, now = delivery.summary, datetime.now(UTC)
        header = self.type_headers[summary.source]
        # Where the type is in the body, there is no header to send.
        event_type = summary.event_type if summary.type_field is None else ""
        signed = partial(self.sign, event_type, delivery.body, now, type_header=header)
        if self.salt is not None:
            return signed(sha256(f"{self.salt}{summary.id}".encode()).hexdigest())
        try:
            return signed(summary.key)
        except ValueError:
            # The key comes from another scheme and is no id of this one; its hash identifies it as well.
            return signed(sha256(summary.key.encode()).hexdigest())

    def _post(self, delivery: DeliveryDetails, headers: Mapping[str, str]) -> bool:
        """Send a delivery, and count its answer; False after too many requests in a row without one."""
        reply = self.poster.post(delivery.body, headers)
        answer = (reply.status, first_line(reply.body.strip()))
        if answer not in self.answers and len(self.answers) >= _MOST_ANSWERS:
            answer = (reply.status, "other answers")
        self.answers[answer] += 1
        self._without_answer = 0 if reply.status is not None else self._without_answer + 1
        if self._without_answer == _MOST_WITHOUT_ANSWER:
            self.stopped_at = delivery.summary.id
        return self.stopped_at is None

    def _print_curl(self, delivery: DeliveryDetails, headers: Mapping[str, str]) -> bool:
        """Print a line for a shell. The signature is in it, for as long as it is valid, and no secret."""
        given = {"Content-Type": "application/json", **headers}
        words = [
            "curl",
            self.url,
            *(word for name, text in given.items() for word in ("-H", f"{name}: {text}")),
        ]
        try:
            text = delivery.body.decode()
        except UnicodeDecodeError:
            text = "\0"
        if text.isprintable() and len(delivery.body) <= _LONGEST_ARGUMENT:
            click.echo(shlex.join([*words, "--data-raw", text]))
        else:
            encoded = base64.b64encode(delivery.body).decode()
            click.echo(f"printf %s {encoded} | base64 -d | {shlex.join([*words, '--data-binary', '@-'])}")
        return True

    def send(self, inbox: Inbox, found: Found) -> None:
        """Send or print each delivery that has a body, until a receiver does not answer; record it."""
        handle = self._print_curl if self.is_curl else self._post
        ids: list[int] = []
        with progress("sending", found.total) as steps, recording(inbox, "forward", found.which) as add:
            try:
                for delivery in chain.from_iterable(details(inbox, batch) for batch in found.batches):
                    steps()
                    if why := NO_BODY.get(delivery.summary.state):
                        self.skipped[why] += 1
                        continue
                    try:
                        headers = self._headers(delivery)
                    except ValueError as error:
                        self.skipped[f"cannot be signed: {first_line(str(error))}"] += 1
                        continue
                    ids.append(delivery.summary.id)
                    if not handle(delivery, headers):
                        break
            finally:
                add(len(ids), () if found.is_named else ids)

    def report(self, selection: Selection, total: int) -> None:
        """Print how many of `total` deliveries were sent, and the answers."""
        number, answers = self.answers.total(), self.answers.most_common()
        if selection.as_json:
            statuses: Counter[str] = Counter()
            for (status, _), count in answers:
                statuses["none" if status is None else str(status)] += count
            listed = [{"status": status, "answer": text, "count": count} for (status, text), count in answers]
            result = {"selected": total, "sent": number, "statuses": statuses, "answers": listed}
            selection.report({**result, "skipped": self.skipped.total(), "stopped_at": self.stopped_at})
            return
        if selection.dry_run:
            click.echo(f"{counted(total, 'delivery')} would be sent")
            return
        if not self.is_curl:
            print_answers(self.answers)
            taken = [
                (text, count) for (status, text), count in answers if status is not None and status < 300
            ]
            duplicates = sum(count for text, count in taken if '"duplicate"' in text)
            results = f"{sum(count for _, count in taken) - duplicates} accepted"
            results += f", {counted(duplicates, 'duplicate')}" if duplicates else ""
            click.echo(f"{number} of {counted(total, 'delivery')} sent, {results}")
        for reason, count in self.skipped.items():
            click.echo(f"{count} not sent, {reason}", err=self.is_curl)
        if self.stopped_at is not None:
            say(
                f"stopped at delivery {self.stopped_at}: {_MOST_WITHOUT_ANSWER} requests in a row had no "
                "answer; run it again when the receiver is there, which knows what it has had"
            )

    def follow(self, inbox: Inbox, selection: Selection) -> None:
        """Send each delivery that is stored from now on, until Ctrl-C, and record that it was done."""
        url = urlsplit(self.url)
        if selection.asks and not is_local(f"{url.hostname}:{url.port or 443}"):
            confirm(f"Send each new delivery to {url.netloc}?")
        which = " ".join(filter(None, ["--follow", selection.filter.as_options]))
        sent: list[int] = []
        with recording(inbox, "forward", which) as add, suppress(KeyboardInterrupt):
            stream = Deliveries(inbox).follow(selection.filter, on_unavailable=Outage().wait)
            say(f"sending new deliveries to {url.netloc}; Ctrl-C ends it")
            try:
                for one in stream:
                    sent.append(one.summary.id)  # before it is sent: it may have arrived when this is ended
                    text = NO_BODY.get(one.summary.state) or self._send_one(one, url.netloc)
                    summary = one.summary
                    line = {"id": summary.id, "type": summary.event_type, "key": summary.key, "result": text}
                    if selection.as_json:
                        print_json_line(line)
                    else:
                        click.echo(printable(f"{summary.id}  {summary.type_text}  {text}"))
                    if len(sent) == _RECORDED_AT_ONCE:
                        with suppress(InboxUnavailable):  # added all the same, and stored by the next call
                            add(len(sent), sent)
                        sent.clear()
            finally:
                add(len(sent), sent)

    def _send_one(self, one: DeliveryDetails, where: str) -> str:
        """Send a delivery until there is an answer, signed anew each time; return the answer."""
        outage = Outage()
        while True:
            try:
                headers = self._headers(one)
            except ValueError as error:
                return f"not sent, it cannot be signed: {first_line(str(error))}"
            reply = self.poster.post(one.body, headers)
            answer = first_line(reply.body.strip())
            if reply.status not in _AWAY:
                return f"{reply.status} {answer} ({took(reply.seconds)})"
            outage.wait(f"{where} does not take delivery {one.summary.id} ({reply.status or answer})")
