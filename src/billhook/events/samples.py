"""Make consistent samples: fields that depend on each other and are not given follow the given ones.

Source: spec, "Events": "errorMessage is added when isSuccessful is false"; what is Paid was paid.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, TypeVar, cast

from pydantic.alias_generators import to_snake

from billhook.events.base import Event
from billhook.events.customers import CustomerPortalLinkSent
from billhook.events.invoices import InvoicePaymentStatusChanged
from billhook.fields import sample as sample_of_fields
from billhook.fields import strict_json
from billhook.fields.model import WireModel
from billhook.fields.types import BillingStatus

S = TypeVar("S", bound=WireModel)

Body = dict[str, Any]


def sample(cls: type[S], **changes: Any) -> S:
    """Return a valid `cls`, the same at every call, with every field given; `changes` replace or add fields.

    >>> sample(CustomerPortalLinkSent, is_successful=True).error_message is None
    True

    Fields that depend on a change follow it, unless they are given too. Changes are validated as in
    `cls(...)`: pydantic's ValidationError. TypeError for a name that looks like a misspelt field.
    """
    if issubclass(cls, Event):
        refuse_misspelt(cls, changes)
    made = sample_of_fields(cls, **changes)
    if not changes or not issubclass(cls, Event) or cls.type not in _RULES:
        return made
    given = {str(cls.model_fields[name].alias) if name in cls.model_fields else name for name in changes}
    body = cast("Body", strict_json.loads(made.to_json()))  # type: ignore[attr-defined]
    return cls.model_validate(in_agreement(cls.type, body, given))


def refuse_misspelt(cls: type[Event], names: Iterable[str], others: Iterable[str] = ()) -> None:
    """Raise TypeError for a name that is not a field but similar to one, or to one of the `others`.

    Any other name adds a field, as the service may do too.
    """
    fields = {name: field.alias for name, field in cls.model_fields.items()}
    known = [*fields, *others]
    for name in names:
        if name in fields or name in fields.values():
            continue
        words = set(to_snake(name).split("_"))
        near = get_close_matches(to_snake(name), known, n=1, cutoff=0.7)
        near += [each for each in known if words <= set(each.split("_"))]
        if near:
            raise TypeError(f"{cls.__name__} has no field {name!r}: did you mean {near[0]}?")


def in_agreement(event_type: str, body: Mapping[str, Any], given: Collection[str]) -> Body:
    """Return `body`, in camelCase, with the fields that are not in `given` adapted to those that are."""
    found = dict(body)
    rule = _RULES.get(event_type)
    if rule is not None and given:
        rule(found, given)
    return found


def _portal_link(body: Body, given: Collection[str]) -> None:
    if "errorMessage" not in given and body.get("isSuccessful") is not False:
        body.pop("errorMessage", None)


def _payment_status(body: Body, given: Collection[str]) -> None:
    is_paid = body.get("billingStatus") == BillingStatus.PAID
    if "paidAt" not in given and not is_paid:
        body["paidAt"] = None
    if "amountPaid" not in given:
        due = "amountDue" if "amountDue" in given else None
        _subtract(body, "amountPaid", "total", due if due or is_paid else "total")
    if "amountDue" not in given:
        _subtract(body, "amountDue", "total", "amountPaid")


def _subtract(body: Body, name: str, whole: str, part: str | None) -> None:
    """Set `name` to the rest of `whole`; the model refuses values that are not numbers."""
    total, subtracted = body.get(whole), Decimal(0) if part is None else body.get(part)
    if isinstance(total, int | Decimal) and isinstance(subtracted, int | Decimal):
        body[name] = total - subtracted


_RULES: Mapping[str, Callable[[Body, Collection[str]], None]] = MappingProxyType(
    {
        CustomerPortalLinkSent.type: _portal_link,
        InvoicePaymentStatusChanged.type: _payment_status,
    }
)
