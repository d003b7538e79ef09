"""A sandbox that is called in its own process."""

from __future__ import annotations

import pytest

from billhook.errors import SandboxError
from support.sandbox import Running


def test_a_sandbox_can_be_called_without_a_socket(sandbox: Running) -> None:
    made = sandbox.sandbox.call("POST", "/catalogProducts", {"name": "API calls"})["catalogProduct"]
    sandbox.sandbox.call("POST", "/_sandbox/clock", {"advance": "P2D"})

    assert sandbox.sandbox.call("GET", f"/catalogProducts/{made['id']}") == {"catalogProduct": made}
    with pytest.raises(
        SandboxError, match="404 resource_not_found: there is no such catalog product"
    ) as caught:
        sandbox.sandbox.call("GET", "/catalogProducts/nobody")

    assert caught.value.status == 404
