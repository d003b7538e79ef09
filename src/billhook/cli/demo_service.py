"""The demo's sender: the sandbox, in which all that is received happens by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from billhook.cli.caller import Caller
from billhook.cli.demo_rows import Row, promised
from billhook.cli.post import Answer
from billhook.sandbox.story import play
from billhook.wire import strict_json

__all__ = ["Service"]

_PAGE = 1000


class Service:
    """A running sandbox."""

    def __init__(self, url: str, client_id: str, api_token: str, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._call = Caller(url, client_id, api_token, 2 * patience_seconds).call

    def play(self, callback_url: str, advance: Callable[[], None]) -> list[str]:
        """Let every event happen, and wait until all was sent; what was done. Raises Fault if refused."""
        now = datetime.fromisoformat(self._call("GET", "/_sandbox/clock", None)["now"])
        steps = []
        for step in play(self._call, callback_url, now):
            steps.append(step)
            advance()
        self._call("POST", "/_sandbox/flush", {"timeoutSeconds": self._patience_seconds})
        return steps

    def sent(self, secret: str) -> list[tuple[Row, Answer]]:
        """Every delivery, with the last answer to it, by the sandbox's log."""
        bodies = {one["id"]: one["body"] for one in self._all("raised", "raised")}
        found = []
        for one in self._all("deliveries", "deliveries"):
            body = strict_json.dumps(bodies[one["raisedId"]])
            row = promised(one["eventType"], body, one["id"], secret, datetime.now(UTC))
            last = one["attempts"][-1] if one["attempts"] else {}
            text = str(last.get("answer", last.get("error", "not sent")))
            found.append((row, Answer(last.get("status"), text, last.get("milliseconds", 0) / 1000)))
        return found

    def _all(self, path: str, name: str) -> Iterator[Any]:
        cursor = ""
        while True:
            page = self._call("GET", f"/_sandbox/{path}?limit={_PAGE}{cursor}", None)
            yield from page[name]
            if not page["hasMore"]:
                return
            cursor = f"&cursor={page['nextCursor']}"
