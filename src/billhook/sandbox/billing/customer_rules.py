"""What a customer's fields may be, where the models leave it open."""

from __future__ import annotations

import re
from collections.abc import Sized

from billhook.resources import CustomerUpdate
from billhook.sandbox.limits import MAX_NAMES
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.keys import check_key

__all__ = ["check"]

_CURRENCY = re.compile(r"[A-Z]{3}")
_DAYS = re.compile(r"[0-9]{1,4}")


def check(given: CustomerUpdate) -> None:
    """Refuse what could not be kept, or not be looked up by."""
    if given.name is not None and not given.name.strip():
        raise invalid_request("name is empty: give one", "name")
    if given.currency is not None and not _CURRENCY.fullmatch(given.currency):
        raise invalid_request("currency is a code of three capital letters, such as USD", "currency")
    if given.due_days is not None and not _DAYS.fullmatch(given.due_days):
        raise invalid_request('dueDays is a whole number as text, such as "30"', "dueDays")
    if given.external_id is not None:
        check_key(given.external_id, "externalId")
    _check_count(given.aliases, "aliases")
    for n, name in enumerate(given.aliases or []):
        check_key(name, f"aliases.{n}")
    _check_count(given.external_integration, "externalIntegration")
    for n, each in enumerate(given.external_integration or []):
        _check_type(each.type or "", f"externalIntegration.{n}.type")
        check_key(each.id or "", f"externalIntegration.{n}.id")


def _check_type(kind: str, param: str) -> None:
    check_key(kind, param)
    # In GET /customers/integration/{integrationType}/{integrationId} the first slash ends the type.
    if "/" in kind:
        raise invalid_request(f"{param} holds a slash: choose another", param)


def _check_count(given: Sized | None, param: str) -> None:
    if given is not None and len(given) > MAX_NAMES:
        raise invalid_request(f"{param} has at most {MAX_NAMES} entries", param)
