"""Headers as people see them: the page of a delivery and `billhook deliveries show` mask the same values."""

from __future__ import annotations

import re
from collections.abc import Iterable

from flask import Flask

from billhook.inbox import DeliveryDetails
from billhook.receiver.blueprint import webhook_routes
from billhook.receiver.delivery_rules import CREDENTIAL

_SECRET_NAME = re.compile(f"{CREDENTIAL.pattern}|SIG|HMAC|KEY")
_HARMLESS = re.compile(r"[0-9]{1,16}|[0-9T:.+Z-]{10,35}")
"""A time of signing, in the formats of the schemes."""


def signature_headers(app: Flask) -> set[str]:
    """Return the headers that the app's sources read."""
    return {name for route in webhook_routes(app) for name in route.source.scheme.headers}


def masked_headers(found: DeliveryDetails, signed_by: Iterable[str]) -> list[tuple[str, str, bool]]:
    """Return the name and value of each header, and whether the value is masked with dots.

    Masked are the headers of signatures, except those of the id and the time, and headers whose names may
    mean a credential.
    """
    signature_names = {name.upper().replace("-", "_") for name in signed_by}
    shown = []
    for name, value in found.headers.items():
        harmless = value == found.summary.key or _HARMLESS.fullmatch(value) is not None
        masked = _SECRET_NAME.search(name) is not None or (name in signature_names and not harmless)
        # Names are stored in WSGI's form: the spelling that the sender used is unknown.
        title = name.replace("_", "-").title()
        shown.append((title, f"•••••• ({len(value)} characters)" if masked else value, masked))
    return shown
