"""`billhook deliveries erase` and `billhook actions`: what a user sees, and what is recorded."""

from __future__ import annotations

import json

import pytest

from billhook.cli.context import operator
from billhook.events import ContractCreated, sample
from billhook.events.inspection import names_customer
from support.apps import deliver
from support.inbox_view import change, rows


def actions(run) -> list[dict[str, object]]:
    result = run("actions", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def states(where) -> dict[int, str]:
    return dict(rows(where, "SELECT id, state FROM delivery ORDER BY id"))


# --- by id ----------------------------------------------------------------------------------------


def test_the_question_says_how_many_are_given_up(run, shop, where):
    change(where, "UPDATE delivery SET state = 'planned' WHERE id = 4")

    asked = run("deliveries", "erase", "4", "1", "--discard", stdin="n\n")

    assert "Erase 2 deliveries for good, and give up 1 of them that are not finished?" in asked.stderr


# --- by customer ----------------------------------------------------------------------------------


@pytest.fixture
def customers(shop):
    """Beside the four of the shop: two of customer 42, one of 420, and one that cannot be read, of 42."""
    contract = sample(ContractCreated).model_copy(update={"customer_id": "42"}).to_json()
    nested = sample(ContractCreated).to_json().replace(b'"customer":{"date"', b'"customer":{"id":"42","date"')
    assert b'"id":"42"' in nested
    for key, body, kind in (
        ("c5", contract, "ContractCreated"),
        ("c6", nested, "ContractCreated"),
        ("c7", b'{"customerId": "420"}', "Later"),
        ("c8", b'{"customerId": "42"', "Later"),
    ):
        deliver(shop.app, body, kind, message_id=key)
    return shop


def test_all_deliveries_of_a_customer_are_erased_and_no_other(run, customers, where):
    result = run("deliveries", "erase", "--customer", "42", "--yes")

    assert states(where) == {
        1: "done", 2: "dead", 3: "quarantined", 4: "done", 5: "erased", 6: "erased", 7: "done",
        8: "quarantined",
    }  # fmt: skip
    assert result.stdout == "2 of 2 deliveries erased\n"
    assert "the index finds 1 delivery with this id; reading all bodies\n" in result.stderr
    assert "searched 8 deliveries: 2 of this customer" in result.stderr


def test_each_body_is_read_once_and_says_more_than_the_index(run, customers, where, monkeypatch):
    contract = sample(ContractCreated).model_copy(update={"customer_id": "cus_5"})
    bodies = {
        "names another customer too": contract.to_json().replace(b"{", b'{"parentCustomerId":"42",', 1),
        "is of a contract of this id": contract.model_copy(update={"contract_id": "42"}).to_json(),
    }
    for key, body in bodies.items():
        deliver(customers.app, body, "ContractCreated", message_id=key)
    customers.handle()
    examined = []

    def examine(event_type, body, customer):
        examined.append(body)
        return names_customer(event_type, body, customer)

    monkeypatch.setattr("billhook.cli.deletion.names_customer", examine)
    result = run("deliveries", "erase", "--customer", "42", "--yes")

    assert "the index finds 2 deliveries with this id" in result.stderr
    assert [states(where)[9], states(where)[10]] == ["erased", "done"]
    assert set(bodies.values()) <= set(examined)
    assert len(set(examined)) == len(examined)


def test_what_cannot_be_read_and_has_the_id_is_named_and_left_to_the_user(run, customers):
    result = run("deliveries", "erase", "--customer", "42", "--yes")
    as_json = json.loads(run("deliveries", "erase", "--customer", "42", "--json").stdout)

    assert result.exit_code == 1
    assert "1 delivery not erased: not readable or without a type, but with the id (8)" in result.stderr
    assert (as_json["selected"], as_json["unreadable"]) == (0, [8])


def test_the_search_may_be_narrowed_and_says_how_far_it_got(run, customers, where):
    result = run(
        "deliveries", "erase", "--customer", "42", "--type", "ContractCreated", "--key", "c5", "--yes"
    )

    assert result.exit_code == 0
    assert "searched 1 delivery: 1 of this customer" in result.stderr
    assert (states(where)[5], states(where)[6]) == ("erased", "done")


def test_reconcile_does_not_store_again_what_was_erased(run, shop):
    run("deliveries", "erase", "1", "--yes")

    result = run("reconcile", "--since", "1d", "--inject", API_URL="http://127.0.0.1:9", API_CLIENT_ID="x",
                 API_REFRESH_TOKEN="0123456789abcdef")  # fmt: skip

    assert result.exit_code == 1
    assert "1 delivery of this range was erased" in result.stderr
    assert "--inject would store" in result.stderr


# --- the record -----------------------------------------------------------------------------------


def test_the_list_of_actions_goes_on(run, shop):
    for verb in ("pause", "resume"):
        run("handlers", verb, "book")

    table = run("actions", "--limit", "1")

    assert ("resume" in table.stdout, "pause" in table.stdout) == (True, False)
    assert "More: add --after 2" in table.stderr


def test_no_text_of_a_payload_is_in_the_record(run, customers, where):
    run("deliveries", "erase", "--customer", "42", "--type", "ContractCreated", "--yes")
    run("deliveries", "discard", "--contains", "inv_1", "--reason", "of customer 4711", "--yes")
    run("deliveries", "replay", "--error", "no mail", "--all-handlers", "--yes")

    assert [one["which"] for one in actions(run)][-2:] == [
        "--contains …: 2",
        "--customer … --type ContractCreated: 5-6",
    ]
    record = str(rows(where, "SELECT * FROM billhook_action"))
    assert not any(text in record for text in ("inv_1", "4711", "no mail", "'42'", " 42"))


def test_a_command_that_changes_nothing_is_no_action(run, shop):
    run("deliveries", "replay", "2", "--dry-run")
    run("deliveries", "discard", "99", "--reason", "x", "--yes")
    run("deliveries", "replay", "--type", "Overage", "--json")
    run("deliveries", "prune", "--older-than", "1", "--dry-run")
    run("handlers", "resume", "book")

    assert actions(run) == []
    assert run("actions").stdout == "no action is recorded\n"


def test_the_operator_is_the_user_of_the_system_and_with_sudo_who_used_it(monkeypatch):
    monkeypatch.setenv("USER", "somebody-else")
    monkeypatch.setenv("LOGNAME", "somebody-else")
    monkeypatch.delenv("SUDO_USER", raising=False)
    plain = operator()
    monkeypatch.setenv("SUDO_USER", "ada")
    monkeypatch.setattr("os.getuid", lambda: 0)

    assert plain != "somebody-else"
    assert operator() == "root (sudo by ada)"
    monkeypatch.setattr("os.getuid", lambda: 54_321)
    assert operator() == "user 54321"
