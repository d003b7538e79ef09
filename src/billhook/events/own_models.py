"""Event models of the user's own: which these are, and what they raise.

Their validators, properties and values are the user's code, which may raise anything, hang, or end the
process. The engines call it in a run of its own (see billhook.engines.reading), all else within `guarded`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from billhook.basics.concurrency import end_forked_child
from billhook.basics.printable import exception_text
from billhook.errors import ModelFailed, PayloadError
from billhook.events.base import EVENT_TYPES, is_of_service


def is_own(event_type: str) -> bool:
    """Return whether the model of an event type is the user's; False for a type without one."""
    model = EVENT_TYPES.get(event_type)
    return model is not None and not is_of_service(model)


@contextmanager
def guarded(event_type: str) -> Iterator[None]:
    """Raise ModelFailed for what the block raises: it calls the model of this type, or reads its values.

    But for a PayloadError, and for KeyboardInterrupt, by which the user ends the program. A child process
    that it forks ends with the block.
    """
    pid = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() != pid:
            end_forked_child("an event model", code=1)
        if isinstance(error, PayloadError | KeyboardInterrupt):
            raise
        text = f"the event model of {event_type} raised {exception_text(error)}"
        raise ModelFailed(text) from error
    if os.getpid() != pid:
        end_forked_child("an event model", code=0)
