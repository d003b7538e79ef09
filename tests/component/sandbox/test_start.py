"""A sandbox that runs: logging in, a product, and a list."""

from __future__ import annotations

import pytest

from billhook.errors import SandboxError
from support.sandbox import running


def test_a_sandbox_accepts_a_login_and_stores_a_product() -> None:
    with running() as sandbox:
        made = sandbox.ok("POST", "/catalogProducts", {"name": "API calls"})["catalogProduct"]

        listed = sandbox.ok("GET", "/catalogProducts")

    assert listed == {"catalogProducts": [made], "total": 1, "hasMore": False, "nextCursor": None}


def test_a_sandbox_can_be_called_without_a_socket() -> None:
    with running() as sandbox:
        made = sandbox.sandbox.call("POST", "/catalogProducts", {"name": "API calls"})["catalogProduct"]
        sandbox.sandbox.call("POST", "/_sandbox/clock", {"advance": "P2D"})

        assert sandbox.sandbox.call("GET", f"/catalogProducts/{made['id']}") == {"catalogProduct": made}
        with pytest.raises(
            SandboxError, match="404 resource_not_found: there is no such catalog product"
        ) as caught:
            sandbox.sandbox.call("GET", "/catalogProducts/nobody")

    assert caught.value.status == 404
