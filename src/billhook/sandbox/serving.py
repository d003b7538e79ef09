"""Serving a sandbox from a thread of this process: for tests, and for a look."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from werkzeug.serving import WSGIRequestHandler, make_server

from billhook.sandbox.sandbox import Sandbox

__all__ = ["serving"]


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


@contextmanager
def serving(sandbox: Sandbox, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Answer and send until the end of the block; gives the base URL. Port 0 takes a free one."""
    server = make_server(host, port, sandbox.app(), threaded=True, request_handler=_Quiet)
    sandbox.is_served_at(f"http://{host}:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="sandbox-server", daemon=True)
    thread.start()
    sandbox.start()
    try:
        yield f"http://{host}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        sandbox.close()
