"""What a handler is told of its delivery: a key that is no other's, and headers by name."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from itertools import product

import pytest

from billhook import Delivery
from billhook.events import PingTest, sample
from billhook.handlers import Headers
from billhook.testing import delivery_of


def delivery(source="default", key="msg_1", variant=""):
    now = datetime.now(UTC)
    return Delivery(1, key, source, "PingTest", 1, now, None, b"{}", Headers({}), variant=variant)


def test_the_idempotency_key_names_the_source_too_and_a_replayed_conflict_has_its_own():
    assert delivery().idempotency_key == "default:msg_1"
    assert delivery("partner").idempotency_key == "partner:msg_1"
    assert delivery("partner").key == delivery().key
    assert delivery(variant="PaymentFailed").idempotency_key == "default:msg_1,PaymentFailed"


def test_no_two_deliveries_share_an_idempotency_key():
    # Of sources no name has a colon, of keys none a comma: all there is else comes in any place.
    sources, keys = ["a", "a-b", "b"], ["b", "a:b", ":", "b:*", "sha256:00", "#"]
    all_variants = ["", "*", "-", "#", "PaymentFailed", "PaymentFailed#", "*#", "-#"]

    found = [delivery(*facts).idempotency_key for facts in product(sources, keys, all_variants)]

    assert len(set(found)) == len(found)


def test_headers_are_found_in_any_case():
    headers = Headers({"Webhook-Id": "msg_1", "X-More": "1"})

    assert headers["webhook-id"] == headers["WEBHOOK-ID"] == headers.get("Webhook-Id") == "msg_1"
    assert "x-more" in headers
    assert headers.get("x-less") is None
    assert (list(headers), len(headers)) == (["Webhook-Id", "X-More"], 2)
    assert headers == {"Webhook-Id": "msg_1", "X-More": "1"}
    assert repr(headers) == "Headers({'Webhook-Id': 'msg_1', 'X-More': '1'})"
    with pytest.raises(KeyError):
        headers["x-less"]


def test_a_delivery_that_is_pickled_says_what_to_pass_instead():
    with pytest.raises(TypeError, match=r"a Delivery cannot be pickled .*: pass its event, or its id"):
        pickle.dumps(delivery_of(sample(PingTest)))
