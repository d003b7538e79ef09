"""What a sandbox can begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from billhook.sandbox.sandbox import Sandbox
from billhook.sandbox.story import SEEDED_CUSTOMER, set_stage, use

__all__ = ["plant"]


def plant(sandbox: Sandbox, advance: Callable[[], None]) -> bool:
    """Customers, contracts, meters and usage: the stage of the story, made through the API itself.

    `advance` is told of each request. False if they are there already: then nothing is done.
    """

    def call(method: str, path: str, body: Any) -> Any:
        answer = sandbox.call(method, path, body)
        advance()
        return answer

    listed = sandbox.call("GET", "/_sandbox/customers?limit=1000")["customers"]
    if any(customer.get("externalId") == SEEDED_CUSTOMER for customer in listed):
        return False
    now = sandbox.clock.now()
    set_stage(call, now)
    use(call, now)
    return True
