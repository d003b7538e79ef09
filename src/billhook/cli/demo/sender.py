"""The demo's sender: a sandbox in which every event happens through the API.

A module of its own, imported only where the extra `sandbox` is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from billhook.cli.demo.expectations import Expectation, expect_handled
from billhook.cli.posting import HttpReply
from billhook.client import BillingClient
from billhook.fields import strict_json
from billhook.sandbox.scenario import run_scenario

__all__ = ["SandboxSender"]

_PAGE_SIZE = 1000


class SandboxSender:
    """A running sandbox, by its client."""

    def __init__(self, client: BillingClient, timeout_seconds: float) -> None:
        self._call = client.request
        self._timeout_seconds = timeout_seconds

    def play(self, callback_url: str, advance: Callable[[], None]) -> list[str]:
        """Make every event happen and wait until all are sent; return the steps. Raises ApiError."""
        now = datetime.fromisoformat(self._call("GET", "/_sandbox/clock", None)["now"])
        steps = []
        for step in run_scenario(self._call, callback_url, now):
            steps.append(step)
            advance()
        # Deliveries are sent in the background: without it, the last ones would be missing from the log.
        self._call("POST", "/_sandbox/flush", {"timeoutSeconds": self._timeout_seconds})
        return steps

    def sent(self, secret: str) -> list[tuple[Expectation, HttpReply]]:
        """Return every delivery of the sandbox's log with the last answer to it."""
        bodies = {one["id"]: one["body"] for one in self._all("raised", "raised")}
        deliveries = []
        for one in self._all("deliveries", "deliveries"):
            body = strict_json.dumps(bodies[one["raisedId"]])
            row = expect_handled(one["eventType"], body, one["id"], secret, datetime.now(UTC))
            last = one["attempts"][-1] if one["attempts"] else {}
            text = str(last.get("answer", last.get("error", "not sent")))
            deliveries.append((row, HttpReply(last.get("status"), text, last.get("milliseconds", 0) / 1000)))
        return deliveries

    def _all(self, path: str, name: str) -> Iterator[Any]:
        cursor = ""
        while True:
            page = self._call("GET", f"/_sandbox/{path}?limit={_PAGE_SIZE}{cursor}", None)
            yield from page[name]
            if not page["hasMore"]:
                return
            cursor = f"&cursor={page['nextCursor']}"
