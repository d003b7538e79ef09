"""Serve a sandbox from a thread of this process: `serving(sandbox)` is the same as `sandbox.run()`.

A module of its own because it is a public import path.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from billhook.sandbox.sandbox import Sandbox


def serving(sandbox: Sandbox, host: str = "127.0.0.1", port: int = 0) -> AbstractContextManager[str]:
    """Serve until the end of the block, then close the sandbox; gives the base URL."""
    return sandbox.run(host, port)
