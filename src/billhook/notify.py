"""Notifications: tell people of issues once, by mail, chat, pager or a plain URL (extra billhook[notify]).

The notifier is a thread that sends messages about issues that have opened, and one when all is well again.

Every worker has one, and a row of the inbox decides which of them sends. An issue is done with when each
address has had a message of it, or has refused it five times. A process that dies before it has recorded a
message leaves the issue to another one: that message comes twice, and is not lost. A message says what is
wrong, and where to look; no text of an exception is in it, for it may name a customer. The addresses are sent
to by apprise: their credentials are in no text and no log.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from billhook.concurrency import reset_in_child, start_thread, unique_process_name
from billhook.errors import BillhookError, ConfigError, MissingExtra, OutOfResources
from billhook.file_modes import check_secret_file
from billhook.inbox import Inbox
from billhook.inbox.issues import Issue
from billhook.inbox.notifications import Sent, due_notifications, record_sent, release
from billhook.inbox.occurrences import IssueKind
from billhook.logs import fields
from billhook.printable import first_line, printable
from billhook.program import program
from billhook.type_names import shown_type

KEY = "BILLHOOK_NOTIFY_FILE"
_LOGGERS = ("apprise", "requests", "urllib3.connectionpool")
"""These log addresses, with the credentials that are in them."""
_SECRET_PARTS = re.compile(r"[/:@?&=,;]+")
_SHORTEST_SECRET = 4
_NO_MENTION = "@\N{ZERO WIDTH SPACE}"
"""A chat must not call everyone because a name in a message says so."""
_warnings: ContextVar[list[str] | None] = ContextVar("_warnings", default=None)
"""What the addresses of this context have logged: apprise may send from a thread with a copy of it."""


class NotifyAddress:
    """One address. Its `name` is the service alone, such as `mailto`; no text of it shows more."""

    def __init__(self, url: str, number: int) -> None:
        """Check `url`, from line `number` of the file. Raises ConfigError for what apprise does not know."""
        self.name = printable(url.partition(":")[0])
        self.number = number
        self._url = url
        apprise = _apprise()
        self._type, self._text = apprise.NotifyType, apprise.NotifyFormat.TEXT
        with _quiet():
            plugin = apprise.Apprise.instantiate(url)
        if plugin is None:
            raise ConfigError(
                f"{KEY}, line {number}, is no address that apprise knows: write one for each line, such as "
                "mailto://USER:PASSWORD@example.com or slack://TOKEN/#channel"
            )
        # A redirect would turn the message into a GET of another page, which may answer 200, and give it the
        # address's headers.
        plugin.redirects = False
        self._service = apprise.Apprise(plugin)

    def __repr__(self) -> str:
        return f"<NotifyAddress {self.number}: {self.name}>"

    def send(self, title: str, body: str, *, good: bool = False) -> str | None:
        """Send a message, which is text and no markup; return None, or why not, without credentials."""
        kind = self._type.SUCCESS if good else self._type.FAILURE
        title, body = (text.replace("@", _NO_MENTION) for text in (title, body))
        with _quiet() as logged:
            try:
                sent = self._service.notify(body=body, title=title, notify_type=kind, body_format=self._text)
            except Exception as error:  # noqa: BLE001 - plugins raise anything
                return self._masked(f"{type(error).__name__}: {error}")
        return None if sent else self._masked(logged[-1] if logged else "the service gave no reason")

    def _masked(self, text: str) -> str:
        shown = first_line(text)
        for part in _SECRET_PARTS.split(self._url)[1:]:
            if len(part) >= _SHORTEST_SECRET and part in shown:
                shown = shown.replace(part, "***")
        return printable(shown)


def read_addresses(path: str) -> tuple[list[NotifyAddress], list[ConfigError]]:
    """Return the addresses of a file, one for each line, and an error for each line that is none.

    Empty lines and those with # in front are left out. Raises ConfigError for the file, and MissingExtra. No
    error repeats an address.
    """
    check_secret_file(KEY, path)
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{KEY} {path} cannot be read: {reason}") from None
    _apprise()
    found: list[NotifyAddress] = []
    errors: list[ConfigError] = []
    for number, line in enumerate(map(str.strip, lines), 1):
        if line and not line.startswith("#"):
            try:
                found.append(NotifyAddress(line, number))
            except ConfigError as error:
                errors.append(error)
    if not (found or errors):
        raise ConfigError(f"{KEY} {path} has no address: write one for each line")
    return found, errors


def _apprise() -> Any:
    try:
        import apprise
    except ImportError:
        raise MissingExtra(KEY, "notify") from None
    return apprise


class _KeepFromLog(logging.Filter):
    """Takes the records of sending to an address out of the log; it keeps their warnings."""

    def filter(self, record: logging.LogRecord) -> bool:
        warnings = _warnings.get()
        if warnings is None:
            return True
        if record.levelno >= logging.WARNING:
            warnings.append(record.getMessage())
        return False


_FILTER = _KeepFromLog()


@contextmanager
def _quiet() -> Iterator[list[str]]:
    # An app may use apprise itself, and log it: only what is ours is taken out.
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
    warnings: list[str] = []
    before = _warnings.set(warnings)
    try:
        yield warnings
    finally:
        _warnings.reset(before)


MOST_PER_HOUR = 10
"""The last of these in an hour is a summary of all that is left."""
_LISTED = 20
_LATER = timedelta(minutes=5)
"""An issue that opens so long after it was first seen was resolved or ignored before: it opens again."""


class Message(NamedTuple):
    """A message, and the issues that it is about; none when all is well again."""

    title: str
    body: str
    issues: tuple[Issue, ...] = ()


def messages(issues: Sequence[Issue], sent: int, program: str, dashboard_url: str | None) -> list[Message]:
    """Return what an address may be sent now that took `sent` messages in the last hour.

    A message for each issue, or a summary where that would be too many; without issues, that all is well.
    """
    left = MOST_PER_HOUR - sent
    if left <= 0:
        return []
    if not issues:
        text = "No issue is open any more."
        return [Message("[billhook] all is well again", _with_link(text, program, dashboard_url))]
    if len(issues) <= max(1, left - 1):
        return [_message(one, program, dashboard_url) for one in issues]
    single = [_message(one, program, dashboard_url) for one in issues[: left - 1]]
    return [*single, _summary(issues[left - 1 :], program, dashboard_url)]


def headline(one: Issue) -> str:
    """Return what an issue is, without the text of an exception."""
    if one.kind is IssueKind.FAILURE:
        return printable(f"{one.subject} fails: {one.title.partition(':')[0]}")
    if one.kind is IssueKind.DEAD:
        return printable(f"{one.subject}: runs are dead")
    if one.kind is IssueKind.QUARANTINE:
        return printable(f"deliveries of {shown_type(one.subject) or '(no type)'} are quarantined")
    return printable(one.title)


def _message(one: Issue, program: str, dashboard_url: str | None) -> Message:
    lines = [headline(one)]
    if one.place is not None:
        lines.append(f"at {printable(one.place)}")
    if one.deliveries:
        times = "once" if one.count == 1 else f"{one.count:,} times"
        what = "delivery" if one.deliveries == 1 else "deliveries"
        lines.append(f"{times} so far, {one.deliveries:,} {what}")
    if one.first_at is not None and one.opened_at - one.first_at > _LATER:
        lines.append(f"it happens again: first seen {one.first_at:%Y-%m-%d %H:%M} UTC")
    lines += ["", f"{program} failures show {one.id}", f"{program} runbook {one.kind.runbook}"]
    if dashboard_url is not None:
        lines.append(f"{dashboard_url.rstrip('/')}/failures/{one.id}")
    return Message(f"[billhook] {lines[0]}", "\n".join(lines), (one,))


def _summary(issues: Sequence[Issue], program: str, dashboard_url: str | None) -> Message:
    listed = [headline(one) for one in issues[:_LISTED]]
    if len(issues) > _LISTED:
        listed.append(f"and {len(issues) - _LISTED} more")
    text = "\n".join([*listed, "", f"No more than {MOST_PER_HOUR} messages are sent in an hour."])
    return Message(
        f"[billhook] {len(issues)} more issues are open",
        _with_link(text, program, dashboard_url),
        tuple(issues),
    )


def _with_link(text: str, program: str, dashboard_url: str | None) -> str:
    lines = [text, f"{program} failures"]
    if dashboard_url is not None:
        lines.append(f"{dashboard_url.rstrip('/')}/failures")
    return "\n".join(lines)


logger = logging.getLogger("billhook.notify")

POLL_SECONDS = 5.0
TRIES = 5
RETRY_SECONDS = 15.0
"""After the first failure; doubled each time."""
STOP_SECONDS = 1.0
_ALL_WELL = ""


class Notifier:
    """Sends from a thread of its own, because a mail server may take its time."""

    def __init__(
        self,
        inbox: Inbox,
        addresses: Sequence[NotifyAddress],
        now: Callable[[], datetime],
        dashboard_url: str | None = None,
    ) -> None:
        self._inbox = inbox
        self._addresses = addresses
        self._now = now
        self._dashboard_url = dashboard_url
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._owner = unique_process_name()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._had: defaultdict[int, set[str]] = defaultdict(set)
        """By the number of an address, what it had or refused for good, of what is due."""
        self._failures: Counter[int] = Counter()
        """In a row: after TRIES of them each further message is tried once, until one is taken."""
        self._retry_at: defaultdict[int, float] = defaultdict(float)

    def ensure_started(self) -> None:
        """Start the thread in this process, unless it runs."""
        if self._thread is None or not self._thread.is_alive():
            self._stopping.clear()
            try:
                self._thread = start_thread(self._work, "billhook-notifier")
            except OutOfResources as error:
                logger.warning("%s", error, extra=fields(cause=error))

    def stop(self) -> None:
        """End the thread, and let another process send; a message that is being sent is not waited for."""
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(STOP_SECONDS)
            if not thread.is_alive():
                with suppress(BillhookError):
                    release(self._inbox, self._owner, self._now())

    def _work(self) -> None:
        while not self._stopping.wait(POLL_SECONDS):
            try:
                self.send_due()
            except BillhookError as error:
                logger.warning("notifications wait: %s", error, extra=fields(cause=error))
            except Exception as error:
                logger.exception("notifications failed", extra=fields(cause=error))

    def send_due(self) -> int:
        """Send what is due if this process is the one to do it; return how many issues are done with.

        An address that fails holds up no other one: it waits for its own next try.
        """
        due = due_notifications(self._inbox, self._owner, self._now())
        if due is None:
            self._had.clear()  # another process may send the next messages
            return 0
        keys = _keys(due.issues)
        for address in self._addresses:
            self._had[address.number] &= keys
            # As another process has recorded it.
            self._had[address.number].update(
                *(keys & one.keys for one in due.sent if one.to == address.number)
            )
        finished = self._record(due.issues)  # what could not be recorded when it was sent
        for address in self._addresses:
            number, had = address.number, self._had[address.number]
            if had >= keys or time.monotonic() < self._retry_at[number]:
                continue
            left = [one for one in due.issues if _key(one) not in had]
            sent = sum(one.to == number for one in due.sent)
            for message in messages(left, sent, program(), self._dashboard_url):
                taken = self._send_to(address, message)
                if not taken and self._failures[number] < TRIES:
                    break
                about = _keys(message.issues)
                had |= about
                record = Sent(number, self._now(), frozenset(about - {_ALL_WELL})) if taken else None
                finished += self._record(message.issues, record)
        return finished

    def _record(self, issues: Sequence[Issue], message: Sent | None = None) -> int:
        done = set.intersection(*(self._had[address.number] for address in self._addresses))
        over = [one for one in issues if _key(one) in done]
        well = not issues and _ALL_WELL in done
        if over or well or message is not None:
            record_sent(self._inbox, over, self._now(), message, well=well)
        return len(over) + well

    def _send_to(self, address: NotifyAddress, message: Message) -> bool:
        number = address.number
        why = address.send(message.title, message.body, good=not message.issues)
        if why is None:
            self._failures[number] = 0
            return True
        self._failures[number] += 1
        given_up = self._failures[number] >= TRIES
        if not given_up:
            self._retry_at[number] = time.monotonic() + RETRY_SECONDS * 2 ** (self._failures[number] - 1)
        text = "could not notify the address on line %d of BILLHOOK_NOTIFY_FILE (%s), %s: %s"
        what = "given up" if given_up else "to be tried again"
        logger.warning(text, number, address.name, what, why, extra=fields(cause="notify"))
        return False


def _key(one: Issue) -> str:
    return f"{one.id}{one.opened_at}"


def _keys(issues: Sequence[Issue]) -> set[str]:
    return {_key(one) for one in issues} or {_ALL_WELL}
