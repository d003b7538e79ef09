"""Starting a thread where the system may have none to give."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from billhook.errors import OutOfResources

__all__ = ["start_thread"]


def start_thread(target: Callable[..., object], name: str, *arguments: Any) -> threading.Thread:
    """Start a daemon thread. Raises OutOfResources where a limit of the system, or memory, forbids it."""
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise OutOfResources(
            f"the thread {name} cannot be started: {error or type(error).__name__}"
        ) from None
    return thread
