"""The memory of what billhook has subscribed, on each kind of database."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from billhook.inbox.operating.subscriptions import forget, list_subscriptions, remember, terms_of
from support.inbox_view import NOON

API, URL = "https://api.example/", "https://shop.example/hooks"


def test_each_is_there_once_and_may_be_forgotten(inbox):
    plain = terms_of(API, URL, {"event_type": "Overage"})
    crossed = {"event_type": "CommitmentUsageCrossed", "threshold": Decimal("80.50")}
    remember(inbox, "ann", plain, NOON)
    remember(inbox, "ann\x1b[31m" + "n" * 200, terms_of(API, URL, crossed), NOON)
    remember(inbox, "bob", plain, NOON + timedelta(days=1))

    other, latest = list_subscriptions(inbox)
    assert (latest.who, latest.at, latest.service) == ("bob", NOON + timedelta(days=1), API.rstrip("/"))
    assert (latest.terms, latest.threshold) == (plain, "")
    assert (other.event_type, other.threshold) == ("CommitmentUsageCrossed", "80.5")
    assert (len(other.who), other.who.isprintable()) == (100, True)
    assert forget(inbox, [latest.id, 99]) == 1
    assert list_subscriptions(inbox) == [other]


def test_all_that_was_sent_tells_two_apart():
    every = [
        terms_of(service, url, {"event_type": event_type, name: number})
        for service in (API, "https://other.example")
        for url in (URL, f"{URL}?a", f"{URL}?b", "https://ann:x@shop.example/hooks")
        for event_type in ("CommitmentUsageCrossed", "CreditPoolThresholdCrossed")
        for name in ("threshold", "recurring_threshold")
        for number in (Decimal(80), Decimal(8))
    ]

    assert len({tuple(one.items()) for one in every}) == len(every) == 64
