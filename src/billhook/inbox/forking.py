"""The lock under which a forked child sets itself up anew, once, whichever of its threads comes first."""

from __future__ import annotations

import os
import threading

__all__ = ["SETTING_UP"]

SETTING_UP = threading.Lock()
"""Held by whoever forks while it forks, so that no child is born with it locked by a thread it has not."""

os.register_at_fork(
    before=SETTING_UP.acquire, after_in_parent=SETTING_UP.release, after_in_child=SETTING_UP.release
)
