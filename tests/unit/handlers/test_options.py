"""Each option of a handler is described once: types, help and columns say the same."""

from __future__ import annotations

from billhook import Handlers
from billhook.events import InvoiceApproved
from billhook.handlers import Handler, RetrySchedule
from billhook.handlers.options import (
    HEADINGS,
    OPTIONS,
    EventHandlerOptions,
    HandlerOptions,
    in_words,
    parse_options,
)

OF_ANY = {name for name, option in OPTIONS.items() if not option.for_types}


def test_type_checkers_know_the_options_that_are_described():
    assert HandlerOptions.__optional_keys__ == OF_ANY
    assert EventHandlerOptions.__optional_keys__ == set(OPTIONS)


def test_the_help_of_the_decorator_tells_the_options():
    told = " ".join(Handlers.on.__doc__.split())

    for name, option in OPTIONS.items():
        assert f"- `{name}`: {option.help}" in told


def test_every_option_but_the_name_has_a_column():
    assert {option.heading for name, option in OPTIONS.items() if name != "name"} == set(HEADINGS)


def test_options_that_are_set_are_told_in_words():
    handlers = Handlers()
    handlers.on(
        InvoiceApproved,
        aliases=["old", "older"], retry=[10, 60], timeout_seconds=90, sources=("eu",),
        at_most=2, rate="90/min", pause_after=5, ordered_by="invoice_id", newest_only=True,
        newest_by="date",
        identity=("date",), identity_window_seconds=60,
    )(lambda event: None)  # fmt: skip
    ((_, handler),) = handlers.freeze()

    assert in_words(handler) == {
        "time-out": "1 min 30 s",
        "retries": "after 10 s, 1 min",
        "limits": "at most 2 at once\n90/min\npauses after 5 failures in a row",
        "ordered by": "invoice_id\nnewest only\nnewest by date",
        "identity": "date\nfor 60 s",
        "sources": "eu",
        "formerly": "old\nolder",
    }
    assert set(in_words(Handler(lambda event: None)).values()) == {""}
    assert in_words(Handler(lambda event: None, retry=RetrySchedule(())))["retries"] == "none"


def test_none_is_as_if_an_option_were_not_given():
    nothing = dict.fromkeys(["name", "retry", "timeout_seconds", "at_most", "rate", "pause_after"])

    assert parse_options("on", nothing, (InvoiceApproved,)) == {}
