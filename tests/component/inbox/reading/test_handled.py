"""Deliveries by when a handler had them: what a wrong deploy handled, whenever it was received."""

from __future__ import annotations

from billhook.inbox import DeliveryFilter, RunState
from billhook.inbox.reading.deliveries import details, page
from support.inbox_view import change, open_inbox
from support.runs import at, claim, planned, settle


def put(inbox, key, received, *handlers):
    return planned(inbox, *handlers, key=key, seconds=received, at=at(received))


def keys(inbox, **filters):
    return [one.key for one in reversed(page(inbox, DeliveryFilter(**filters), 50))]


def test_any_attempt_that_ended_in_the_time_selects(inbox):
    put(inbox, "waited", 0, "book")
    settle(inbox, claim(inbox, 1, 100), seconds=100)
    put(inbox, "failed and went well later", 10, "book")
    (failing,) = claim(inbox, 1, 105)
    settle(inbox, [failing], RunState.DUE, 110, due_at=at(300))
    settle(inbox, claim(inbox, 1, 300), seconds=310)
    put(inbox, "dead", 120, "book")
    settle(inbox, claim(inbox, 1, 120), RunState.DEAD, 130)
    put(inbox, "of another", 140, "mail")
    settle(inbox, claim(inbox, 1, 140), seconds=150)
    put(inbox, "not yet", 150, "book")

    selected = {
        (100, 200, None): ["waited", "failed and went well later", "dead", "of another"],
        (100, 200, "book"): ["waited", "failed and went well later", "dead"],
        (100, 110, None): ["waited"],  # the end is not of it
        (110, 111, None): ["failed and went well later"],
        (200, None, None): ["failed and went well later"],
        (None, 120, None): ["waited", "failed and went well later"],
        (140, 160, "book"): [],
        (400, None, None): [],
    }
    for (since, until, handler), expected in selected.items():
        filters = {"handled_since": since, "handled_until": until}
        times = {name: at(seconds) for name, seconds in filters.items() if seconds is not None}
        assert keys(inbox, **times, handler=handler) == expected, (since, until, handler)


def test_both_times_are_of_one_attempt(inbox):
    put(inbox, "before and after", 0, "book")
    settle(inbox, claim(inbox, 1, 0), RunState.DUE, 50, due_at=at(300))
    settle(inbox, claim(inbox, 1, 300), seconds=310)

    assert keys(inbox, handled_since=at(100), handled_until=at(200)) == []
    assert keys(inbox, handled_since=at(100)) == keys(inbox, handled_until=at(200)) == ["before and after"]


def test_the_time_is_that_of_the_named_handler(inbox):
    put(inbox, "both", 0, "book", "mail")
    claims = {one.handler: one for one in claim(inbox, 2, 0)}
    settle(inbox, [claims["mail"]], seconds=10)
    settle(inbox, [claims["book"]], seconds=20)
    early = {"handled_since": at(0), "handled_until": at(15)}

    assert keys(inbox, **early, handler="mail") == ["both"]
    assert keys(inbox, **early, handler="book") == []


def test_what_failed_since_a_time_and_is_not_mended_selects(inbox):
    put(inbox, "long dead", 0, "book")
    settle(inbox, claim(inbox, 1, 0), RunState.DEAD, 50)
    put(inbox, "dead", 60, "book", "mail")
    claims = {one.handler: one for one in claim(inbox, 2, 60)}
    settle(inbox, [claims["mail"]], seconds=110)
    settle(inbox, [claims["book"]], RunState.DEAD, 110)
    put(inbox, "mended", 120, "book")
    settle(inbox, claim(inbox, 1, 120), RunState.DUE, 130, due_at=at(140))
    settle(inbox, claim(inbox, 1, 140), seconds=150)
    put(inbox, "retried", 160, "mail")
    settle(inbox, claim(inbox, 1, 160), RunState.DUE, 170, due_at=at(9_000))
    put(inbox, "not yet", 180, "book")

    assert keys(inbox, failed_since=at(0)) == ["long dead", "dead", "retried"]
    assert keys(inbox, failed_since=at(100)) == ["dead", "retried"]
    assert keys(inbox, failed_since=at(100), handler="book") == ["dead"]
    assert keys(inbox, failed_since=at(100), handler="mail") == ["retried"]
    assert keys(inbox, failed_since=at(171)) == []


def test_a_release_selects_what_its_attempts_ended(where):
    old = open_inbox(where, release="1.0")
    put(old, "well", 0, "book")
    settle(old, claim(old, 1, 0), seconds=1)
    put(old, "failed then", 0, "book")
    settle(old, claim(old, 1, 2), RunState.DUE, 3, due_at=at(10))
    new = open_inbox(where, release="1.1")
    settle(new, claim(new, 1, 10), seconds=11)
    put(new, "of the new one", 20, "mail")
    settle(new, claim(new, 1, 20), seconds=21)
    first = f"{at(0):%Y-%m-%d %H:%M:%S.000000}"  # by the clock of this machine they began later
    change(where, "UPDATE billhook_release SET first_at = ?", first)

    both = ["failed then", "of the new one"]
    assert keys(new, release="1.1") == both
    assert keys(new, release="1.0") == ["well", "failed then"]
    assert keys(new, release="1.1", handler="mail") == ["of the new one"]
    assert keys(new, release="1.1", handled_until=at(15)) == ["failed then"]
    assert keys(new, release="none") == []
    shown = {one.summary.key: one for one in details(new, [1, 2])}
    (run,) = shown["failed then"].runs
    assert (run.release, run.failures[0].release, run.worker) == ("1.1", "1.0", "host:1")
    assert [one.release for one in shown["well"].runs] == ["1.0"]
