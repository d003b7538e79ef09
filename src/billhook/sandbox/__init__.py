"""The billing service's stand-in, for development and tests: `pip install 'billhook[sandbox]'`.

It knows events, resources and signing, and nothing of the receiver: an independent witness.
"""

from __future__ import annotations

from billhook.errors import MissingExtra

try:
    from billhook.sandbox.options import SandboxOptions
    from billhook.sandbox.sandbox import Sandbox
except ModuleNotFoundError as error:
    # Any other missing module is a mistake of the installation, which must not be hidden.
    if error.name not in ("httpx2", "jwt", "limits"):
        raise
    raise MissingExtra("billhook.sandbox", "sandbox") from None

__all__ = ["Sandbox", "SandboxOptions"]
