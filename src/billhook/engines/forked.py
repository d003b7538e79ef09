"""A child that a handler forked and that comes back into billhook, where there is nothing for it to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

__all__ = ["in_one_process"]


@contextmanager
def in_one_process(context: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """The context, which only the process that entered it leaves; a forked child ends here, at once.

    It has copies of this process's sockets, locks and claims, and no thread of it but this one: it would
    settle a run that its parent settles, and hold a port for as long as it lived.
    """
    with context():
        pid = os.getpid()
        code = 0
        try:
            yield
        except BaseException:
            code = 1
            raise
        finally:
            if os.getpid() != pid:
                with suppress(OSError):  # no logger: its lock may be held by a thread that is not here
                    os.write(2, b"billhook: a child that a handler forked returned from it, and was ended\n")
                os._exit(code)
