"""Names of handlers compared with those that runs are stored under."""

from __future__ import annotations

import pytest

from billhook import Handlers
from billhook.events import EVENT_TYPES, InvoiceApproved, PaymentFailed, PingTest
from billhook.handlers import ConnectedHandlers, connect
from billhook.handlers.registered import left_alone, missing_from, names_of, types_of


class Sender:
    """Stands for an app: signals need an object they can refer to weakly."""


@pytest.fixture
def connected():
    """`chase` was `dun`; another handler has the name `remind`, which was an alias of it; `all` takes all."""
    handlers, others, sender = Handlers(), Handlers(), Sender()
    handlers.on(PaymentFailed, name="chase", aliases=["dun", "remind"])(lambda event: None)
    others.on(InvoiceApproved, name="remind", aliases=["letter"])(lambda event: None)
    handlers.on_any(name="all")(lambda event: None)
    for each in (handlers, others):
        connect(each.freeze(), sender)
    return ConnectedHandlers(sender)


def test_the_names_of_a_handler_are_its_own_and_its_former_ones(connected):
    assert names_of(connected, "chase") == ("chase", "dun", "remind")
    assert names_of(connected, "dun") == ("dun", "chase", "remind")
    assert names_of(connected, "remind") == ("remind", "letter")  # a name takes precedence over an alias
    assert names_of(connected, "unknown") == ("unknown",)


def test_the_types_of_a_handler_are_none_if_any_may_come(connected):
    assert types_of(connected, "chase") == ("PaymentFailed",)
    assert types_of(connected, "all") is None
    assert types_of(connected, "unknown") == ()


def test_a_handler_is_missing_where_none_of_the_type_has_or_had_its_name(connected):
    is_missing = missing_from(connected)
    assert is_missing is not None

    found = {
        (each.type, name)
        for each in (PaymentFailed, InvoiceApproved, PingTest)
        for name in ("chase", "dun", "remind", "all", "gone")
        if not is_missing(each.type, name)
    }

    assert found == {
        *(("PaymentFailed", name) for name in ("chase", "dun", "remind", "all")),
        *(("InvoiceApproved", name) for name in ("remind", "all")),
        ("PingTest", "all"),
    }
    assert not is_missing("Unheard", "all")
    assert "Unheard" not in EVENT_TYPES


def test_without_any_handler_nothing_is_known():
    assert missing_from(ConnectedHandlers(Sender())) is None


def test_what_is_left_is_told_with_its_remedy(connected):
    gone, other = left_alone(connected, {"a b": 2, "chase": 1})

    assert gone.startswith("2 runs of a b are left as before: no handler has this name; if it has a new name")
    assert "replay --handler 'a b' --to NEW`" in gone
    assert other.startswith("1 run of chase is left as before: the handler does not handle their event type")
