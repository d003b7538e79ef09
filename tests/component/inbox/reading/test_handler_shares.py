"""How many of all an issue concerns, and since which release."""

from __future__ import annotations

import pytest

from billhook.inbox import RunState
from billhook.inbox.reading import handler_shares as shares
from billhook.inbox.reading.handler_shares import first_release, known_issues, read_share
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import list_issues
from billhook.inbox.watching.occurrences import IssueKind
from support.inbox_view import NOON, open_inbox
from support.runs import claim, planned, settle


def handle(inbox, key, *, fails=False, handler="book", group="bug"):
    """A delivery that a handler has had."""
    planned(inbox, handler, key=key)
    state, group = (RunState.DEAD, group) if fails else (RunState.SUCCEEDED, None)
    settle(inbox, claim(inbox, 1), state, 1, group=group)


def share(inbox, kind=IssueKind.FAILURE):
    update_issues(inbox, NOON)
    (one,) = [each for each in list_issues(inbox) if each.kind is kind]
    return read_share(inbox, one)


@pytest.mark.parametrize(("kind", "group"), [(IssueKind.FAILURE, "bug"), (IssueKind.DEAD, None)])
def test_the_share_is_of_what_the_handler_had_since_the_first_failure(inbox, kind, group):
    handle(inbox, "before")
    for number in range(12):
        handle(inbox, f"k{number}", fails=number % 4 == 0, group=group)
        handle(inbox, f"other {number}", handler="mail")

    found = share(inbox, kind)

    assert (found.failing, found.all, found.capped) == (3, 12, False)
    assert found.text == "3 of 12, 25 %"


@pytest.mark.parametrize(
    ("failing", "every", "text"),
    [(9, 120, "9 of 120, 7.5 %"), (1, 4_000, "1 of 4,000, 0.025 %"), (5, 5, "5 of 5")],
)
def test_a_share_in_words(failing, every, text):
    assert shares.IssueShare(failing, every, False).text == text


def test_no_more_than_the_newest_are_compared(inbox, monkeypatch):
    monkeypatch.setattr(shares, "COMPARED", 4)
    for number in range(6):
        handle(inbox, f"k{number}", fails=number % 2 == 0)

    found = share(inbox)

    assert (found.failing, found.all, found.capped) == (2, 4, True)
    assert found.text == "2 of the newest 4, 50 %"
    for number in range(4):
        handle(inbox, f"well {number}")
    assert share(inbox) is None  # none of those that are compared


def test_an_issue_of_no_handler_has_no_share(inbox):
    planned(inbox, error='{"error": "x"}')

    assert share(inbox, IssueKind.QUARANTINE) is None


def test_an_issue_occurs_since_a_release(where):
    for name in ("1.0", "1.1"):
        inbox = open_inbox(where, release=name)
        handle(inbox, f"of {name}", fails=True)
    update_issues(inbox, NOON)
    (one,) = [each for each in list_issues(inbox) if each.kind is IssueKind.FAILURE]

    assert first_release(inbox, one.id) == "1.0"
    assert first_release(inbox, "0" * 12) is None


def test_without_a_name_there_is_no_release(inbox):
    handle(inbox, "k", fails=True)
    update_issues(inbox, NOON)

    assert {first_release(inbox, one.id) for one in list_issues(inbox)} == {None}


def test_only_ids_of_issues_are_known(inbox):
    handle(inbox, "k", fails=True)
    update_issues(inbox, NOON)
    ids = {one.id for one in list_issues(inbox)}

    assert known_issues(inbox, {*ids, "0" * 12}) == ids
    assert known_issues(inbox, ()) == set()
