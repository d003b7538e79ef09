"""One key under several types, or with other bytes: each kept once, beside the first. On both databases."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, product

import pytest

from billhook.events import EVENT_TYPES
from billhook.inbox import Inbox, NewDelivery, PutStatus
from billhook.inbox.operating.operations import discard
from billhook.inbox.storing.ingest import FIRST, StoredVariant, choose_variant, ingest
from support.inbox_view import NOON, change, column, rows, value
from support.processes import in_children

A, D, C, S = PutStatus.ACCEPTED, PutStatus.DUPLICATE, PutStatus.CONFLICT, PutStatus.SURPLUS


def sent(event_type="PaymentFailed", body=b"{}", key="k"):
    return NewDelivery("default", key, event_type, body, "{}", NOON, NOON, event_type in EVENT_TYPES)


def put_all(inbox, *deliveries):
    return [inbox.put(one).status for one in deliveries]


def variants(where):
    return column(where, "SELECT variant FROM delivery ORDER BY id")


def test_a_stored_key_with_another_type_is_quarantined(inbox, where):
    first = inbox.put(sent("InvoiceApproved"))

    second = inbox.put(sent("PaymentFailed"))

    error = f"type conflict with delivery {first.delivery_id}"
    assert (second.status, second.stored_event_type) == (PutStatus.CONFLICT, "InvoiceApproved")
    assert (second.conflict_of, second.error) == (first.delivery_id, error)
    columns = "id, event_type, variant, state, error, conflict_of, sent_as"
    assert rows(where, f"SELECT {columns} FROM delivery ORDER BY id") == [
        (first.delivery_id, "InvoiceApproved", "", "received", None, None, None),
        (second.delivery_id, "PaymentFailed", "PaymentFailed", "quarantined", error, first.delivery_id, None),
    ]


def test_a_repeated_conflict_is_a_duplicate_of_its_own_row(inbox):
    deliveries = [sent("InvoiceApproved"), sent("PaymentFailed"), sent("Odd"), sent("")]
    ids = [inbox.put(one).delivery_id for one in deliveries]

    again = [inbox.put(one) for one in deliveries]

    assert [receipt.status for receipt in again] == [D] * 4
    assert [receipt.delivery_id for receipt in again] == ids
    assert {receipt.stored_event_type for receipt in again} == {"InvoiceApproved"}


def unread(body=b"{}", key="k"):
    return replace(sent("", body, key), type_field="type")


def test_a_type_in_the_body_is_the_first_in_one_statement(inbox, where, monkeypatch):
    def write(*_, **__):
        raise AssertionError("a second transaction")

    monkeypatch.setattr(type(inbox.database), "write", write)

    assert put_all(inbox, unread(), unread(), unread(key="other")) == [A, D, A]
    stored = rows(where, "SELECT variant, event_type, type_field, state FROM delivery")
    assert stored == [("", "", "type", "received")] * 2


def test_of_one_batch_a_repeated_body_is_a_duplicate_and_another_one_a_conflict(inbox, where):
    receipts = ingest(inbox.database, [unread(), unread(b"[]"), unread(), unread(b"[]"), sent("", b"{}")])

    assert [receipt.status for receipt in receipts] == [A, C, D, D, D]
    assert [variant[:1] for variant in variants(where)] == ["", "#"]
    assert receipts[1].error == f"content conflict with delivery {receipts[0].delivery_id}"


@pytest.mark.parametrize("event_type", ["", "PaymentFailed", "orders/create"])
def test_where_a_type_is_in_the_body_the_bytes_decide_read_or_unread(event_type):
    digest = sent().digest
    first = {FIRST: StoredVariant(5, event_type, digest, None, "type")}

    for same in (unread(), sent(), sent("InvoiceApproved"), sent("Odd"), sent("")):
        choice = choose_variant(first, same)
        assert (choice.status, choice.variant) == (D, FIRST), same
    for other in (unread(b"[]"), sent(body=b"[]"), sent("", b"[]")):
        choice = choose_variant(first, other)
        assert (choice.status, choice.variant, choice.conflict_of) == (C, "#" + other.digest.hex(), 5), other
    # As after erasing: without a digest every body is like it.
    erased = {FIRST: StoredVariant(5, event_type, None, None, "type")}
    assert choose_variant(erased, unread(b"[]")).status is D
    # The other way round: the first came with a header.
    assert choose_variant({FIRST: StoredVariant(5, "PaymentFailed", digest)}, unread()).status is D
    assert choose_variant({FIRST: StoredVariant(5, "PaymentFailed", digest)}, unread(b"[]")).status is C


def test_a_key_has_a_bounded_number_of_rows_over_all_types(inbox, where):
    unknown = [f"Made.Up{number}" for number in range(30)]

    verdicts = put_all(inbox, *[sent(kind) for kind in ["PaymentFailed", *EVENT_TYPES, *unknown]])

    most = len(EVENT_TYPES) + 1  # each known type once, and all unknown ones together
    assert [verdicts.count(each) for each in (A, C, D, S)] == [1, len(verdicts) - 2, 1, 0]
    assert value(where, "SELECT count(*) FROM delivery") == most
    assert put_all(inbox, sent(""), sent("")) == [C, D]


def test_a_key_with_an_unknown_first_type_has_one_more_row(inbox, where):
    kinds = ["Made.Up", *EVENT_TYPES, "Another", "Made.Up", "Third"]

    verdicts = put_all(inbox, *map(sent, kinds))

    assert (verdicts.count(C), verdicts[-2:]) == (len(EVENT_TYPES) + 2, [D, C])
    assert value(where, "SELECT count(*) FROM delivery") == len(EVENT_TYPES) + 2


def test_other_bytes_of_a_key_and_type_are_stored_once(inbox, where):
    for kind in ("InvoiceApproved", "PaymentFailed", "Odd", ""):
        key = f"k of {kind}"
        inbox.put(sent("InvoiceApproved", key=key))
        before = inbox.put(sent(kind, key=key)).delivery_id

        bodies = [b"[1]", b"[1]", b"[2]", b"[3]", b"[2]"]
        receipts = [inbox.put(sent(kind, body, key)) for body in bodies]

        assert [receipt.status for receipt in receipts] == [C, D, C, C, D], kind
        assert receipts[0].error == f"content conflict with delivery {before}"
        for body in bodies:
            assert value(where, "SELECT count(*) FROM delivery WHERE key = ? AND body = ?", key, body) == 1


def test_further_unknown_types_are_named_once_in_the_row_of_their_bytes(inbox, where):
    first = inbox.put(sent("InvoiceApproved")).delivery_id
    kinds = ["Aa", "Bb", "CustomerMerged", "Bb", "Aa"]

    verdicts = [inbox.put(sent(kind, body)) for body in (b"{}", b"[1]") for kind in kinds]

    assert [receipt.status for receipt in verdicts] == [C, C, C, D, D] * 2
    names = "; also sent as Bb, CustomerMerged"
    assert rows(
        where, "SELECT event_type, body, error FROM delivery WHERE variant LIKE '*%' ORDER BY id"
    ) == [
        ("Aa", b"{}", f"type conflict with delivery {first}{names}"),
        ("Aa", b"[1]", f"content conflict with delivery {verdicts[0].delivery_id}{names}"),
    ]
    assert {receipt.conflict_of for receipt in verdicts if receipt.status is C} == {first}


def test_so_many_names_are_kept_that_a_stranger_cannot_make_a_row_long(inbox, where):
    put_all(inbox, sent("InvoiceApproved"), *[sent(f"{number:0100d}X"[::-1]) for number in range(7)])

    assert len(value(where, "SELECT error FROM delivery WHERE variant = '*'")) <= 500
    assert put_all(inbox, sent("Z" * 100), sent("Z" * 100)) == [S, S]


def test_an_operators_reason_stays_apart_from_the_types_that_come_later(inbox, where):
    put_all(inbox, sent("InvoiceApproved"), sent("Aa"), sent("Bb"))
    discard(inbox, [value(where, "SELECT id FROM delivery WHERE variant = '*'")], "not ours", NOON)

    assert put_all(inbox, sent("Cc"), sent("Bb"), sent("Bb")) == [C, C, D]
    assert value(where, "SELECT error FROM delivery WHERE variant = '*'") == "not ours; also sent as Cc, Bb"


def test_which_types_a_row_names_is_not_read_in_its_error(inbox, where):
    put_all(inbox, sent("InvoiceApproved"), sent("Aa"), sent("Bb"))
    change(where, "UPDATE delivery SET error = 'also sent as Cc' WHERE variant = '*'")

    assert put_all(inbox, sent("Bb"), sent("Cc")) == [D, C]
    assert rows(where, "SELECT error, also_sent_as FROM delivery WHERE variant = '*'") == [
        ("also sent as Cc, Cc", '["Bb", "Cc"]')
    ]


def test_a_row_that_an_operator_had_planned_names_no_further_type(inbox, where):
    put_all(inbox, sent("InvoiceApproved"), sent("Aa"))
    change(where, "UPDATE delivery SET error = NULL, state = 'received' WHERE variant = '*'")

    assert put_all(inbox, sent("Bb")) == [S]


def test_an_untyped_delivery_is_not_the_first(inbox, where):
    given = [("", b"{}"), ("", b"[]"), ("PaymentFailed", b"{}")]
    receipts = [inbox.put(sent(kind, body)) for kind, body in given]

    assert [receipt.status for receipt in receipts] == [PutStatus.UNTYPED, C, A]
    assert receipts[0].error == "no event type"
    assert (receipts[0].conflict_of, receipts[1].conflict_of) == (None, receipts[0].delivery_id)
    stored = rows(where, "SELECT substr(variant, 1, 2), state FROM delivery ORDER BY id")
    assert stored == [("-", "quarantined"), ("-#", "quarantined"), ("", "received")]
    # Nor is it beside a type in the body.
    assert put_all(inbox, sent("", key="other"), unread(key="other")) == [PutStatus.UNTYPED, A]


def test_a_type_set_by_an_operator_does_not_count_as_the_sent_type(inbox, where):
    put_all(inbox, sent("InvoiceApproved"), sent("PaymentFailed"))
    change(where, "UPDATE delivery SET sent_as = event_type, event_type = 'Overage' WHERE variant <> ''")

    assert put_all(inbox, sent("PaymentFailed"), sent("Overage")) == [D, C]


# --- at the same time -----------------------------------------------------------------------------


def test_conflicts_within_one_batch_each_find_their_place(inbox, where):
    kinds = ["A", "PaymentFailed", "Overage", "PaymentFailed", "", "A", "B"]

    receipts = ingest(inbox.database, [*map(sent, kinds), sent("", key="no first")])

    assert [receipt.status for receipt in receipts] == [A, C, C, D, C, D, C, PutStatus.UNTYPED]
    assert variants(where) == ["", "PaymentFailed", "Overage", "-", "*", "-"]
    assert receipts[3].delivery_id == receipts[1].delivery_id
    assert {receipt.conflict_of for receipt in receipts} == {None, receipts[0].delivery_id}


def test_a_first_row_deleted_during_the_lookup_is_replaced(inbox, where):
    first = inbox.put(sent())

    class Database:
        """The inbox's, with somebody who prunes the row just after it kept the next one out."""

        read, write = inbox.database.read, inbox.database.write

        @staticmethod
        def insert_new(batch):
            ids = inbox.database.insert_new(batch)
            change(where, "DELETE FROM delivery")
            return ids

    (receipt,) = ingest(Database(), [sent()])

    assert receipt.status is A
    assert receipt.delivery_id != first.delivery_id or value(where, "SELECT count(*) FROM delivery") == 1
    assert rows(where, "SELECT variant, state, error FROM delivery") == [("", "received", None)]


@pytest.mark.slow
def test_from_three_processes_every_type_is_stored_once(inbox_url, where):
    kinds = list(product([*islice(EVENT_TYPES, 6), "Odd", ""], [b"{}", b"[1]"]))

    def put(number):
        inbox = Inbox(inbox_url)
        told = [inbox.put(sent(*kind), 30).status for kind in kinds[number:] + kinds[:number]]
        inbox.close()
        return " ".join(told).encode()

    verdicts = b" ".join(in_children(3, put)).decode().split()

    stored = rows(where, "SELECT event_type, body FROM delivery")
    assert sorted(stored) == sorted(kinds)
    # What names no type is "untyped" or a conflict, as its key had a first one already or not.
    assert verdicts.count("accepted") == 1
    assert verdicts.count("conflict") + verdicts.count("untyped") == len(kinds) - 1
    assert verdicts.count("duplicate") == 2 * len(kinds)


def test_control_two_unlocked_conflicts_would_be_the_same_variant(inbox, where):
    """The control: without the lock of the second step, both see no conflict yet, and both store one."""
    inbox.put(sent("InvoiceApproved"))
    seen = {FIRST: StoredVariant(1, "InvoiceApproved", None)}

    places = [choose_variant(seen, sent("PaymentFailed")) for _ in range(2)]

    assert [found.status for found in places] == [C, C]
    assert places[0].variant == places[1].variant
