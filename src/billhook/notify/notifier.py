"""The notifier: sends what is due to each address, if this process is the one to do it.

    an issue opens                      a message to each address, ten in an hour at most: then a summary
    an address refuses                  again after 15 s, 30 s, 60 s, every 90 s, after a day every 10 min
    it takes messages again             one summary of all that is open, if that is more than one issue
    the issue closes before it does     no message of it
    no issue is open any more           that all is well, to each address that had a message

What each address took is in the inbox. A process that dies before it has recorded a message leaves the issue
to another one: that message comes twice, and is not lost.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

from billhook.basics.concurrency import reset_in_child, unique_process_name
from billhook.basics.process_identity import own_process
from billhook.errors import BillhookError
from billhook.inbox import Inbox
from billhook.inbox.watching.notifications import (
    AddressState,
    Due,
    key_of,
    read_due,
    record_state,
    release_lease,
    take_lease,
)
from billhook.logs import fields
from billhook.notify.addresses import KEY, NotifyAddress
from billhook.notify.messages import Message, Writer

logger = logging.getLogger("billhook.notify")


class Notifier:
    """Sends in the thread that calls it; a mail server may take its time."""

    def __init__(
        self, inbox: Inbox, addresses: Sequence[NotifyAddress], now: Callable[[], datetime], writer: Writer
    ) -> None:
        self.addresses = addresses
        self.writer = writer
        self._inbox = inbox
        self._now = now
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._owner = f"{unique_process_name()} {own_process()}"
        self._unrecorded: defaultdict[int, list[frozenset[str]]] = defaultdict(list)
        """By the number of an address, what it took while the inbox could not be written."""

    def stop(self) -> None:
        """Let another process send."""
        with suppress(BillhookError):
            release_lease(self._inbox, self._owner, self._now())

    def send_due(self) -> int:
        """Send what is due if this process is the one to do it; return how many messages were taken.

        An address that fails holds up no other one: it waits for its own next try.
        """
        due = read_due(self._inbox)
        if not self._is_needed(due) or not take_lease(self._inbox, self._owner, self._now()):
            return 0
        due = read_due(self._inbox)  # again: another process may have sent it meanwhile
        taken = sum(self._send_to(address, due) for address in self.addresses)
        if not any(self._unrecorded.values()):
            self.stop()  # at once: this process may die, and the next one would wait for the end of the lease
        return taken

    def _is_needed(self, due: Due) -> bool:
        if any(self._unrecorded.values()):
            return True
        return any(self._messages(self._state(one.number, due), due) for one in self.addresses)

    def _messages(self, state: AddressState, due: Due) -> list[Message]:
        """Return what is to be sent now to the address with this state."""
        if state.is_waiting(self._now()):
            return []
        left = [one for one in due.issues if key_of(one) not in state.told]
        if left:
            return self.writer.about(left, state.sent_lately(self._now()), state.failing_since)
        is_news = due.all_closed and not state.well
        return [self.writer.all_well()] if is_news else []

    def _state(self, number: int, due: Due) -> AddressState:
        state = due.state(number)
        for keys in self._unrecorded[number]:
            state = state.took(keys, self._now())
        return state

    def _send_to(self, address: NotifyAddress, due: Due) -> int:
        number, taken = address.number, 0
        state = self._state(number, due)
        if self._unrecorded[number]:
            self._record(number, state, due)
        for message in self._messages(state, due):
            if not take_lease(self._inbox, self._owner, self._now()):
                break  # this process has been held up for so long that another one sends
            keys = frozenset(map(key_of, message.issues))
            why = address.send(message.title, message.body, good=not keys)
            if why is not None:
                state = state.refused(self._now())
                self._log(address, state, why)
                self._record(number, state, due)
                break
            taken += 1
            state = state.took(keys, self._now())
            self._unrecorded[number].append(keys)
            self._record(number, state, due)
        return taken

    def _record(self, number: int, state: AddressState, due: Due) -> None:
        numbers = [address.number for address in self.addresses]
        record_state(self._inbox, number, state, due.issues, numbers)
        self._unrecorded[number].clear()

    def _log(self, address: NotifyAddress, state: AddressState, why: str) -> None:
        if state.failures & (state.failures - 1):
            return  # the 1st, 2nd, 4th, 8th … in a row: it may fail for days
        text = "could not notify the address on line %d of %s (%s), to be tried again: %s"
        logger.warning(text, address.number, KEY, address.name, why, extra=fields(cause="notify"))
