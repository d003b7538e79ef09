"""Read the errors that the inbox stores: why a delivery waits."""

from __future__ import annotations

import json
from typing import Any


def parse_error(text: str) -> dict[str, Any]:
    """Return why a delivery is quarantined or discarded: `error`, and `details` with `loc` and `msg`."""
    # The engine stores a parser's errors as JSON, `discard` stores the user's reason as plain text, and that
    # text may happen to be JSON of another form.
    try:
        error = json.loads(text)
    except ValueError:
        error = None
    return error if isinstance(error, dict) and "error" in error else {"error": text, "details": []}
