"""`billhook deliveries erase` and `billhook actions`: what a user sees, and what is recorded."""

from __future__ import annotations

import json

import pytest

from billhook.cli.context import LOGIN_ID, operator
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


def test_reconcile_does_not_store_again_what_was_erased(run, shop, where):
    """But of other types, or of a later time, what is missing."""
    erased, other = "InvoiceApproved", "ContractCreated"
    change(where, "UPDATE delivery SET event_type = ? WHERE id = 1", erased)
    run("deliveries", "erase", "1", "--yes")
    ((at,),) = rows(where, "SELECT received_at FROM delivery WHERE id = 1")
    at = str(at)[:19]
    service = {"API_URL": "http://127.0.0.1:9", "API_CLIENT_ID": "x", "API_REFRESH_TOKEN": "0123456789abcdef"}

    for which in ([], ["--type", erased]):
        result = run("reconcile", "--since", "1d", "--inject", *which, **service)
        assert result.exit_code == 1
        assert f"1 delivery of this range was erased, the last received {at} UTC: --inject" in result.stderr
    result = run("reconcile", "--since", "1d", "--inject", "--type", other, **service)
    assert "erased" not in result.stderr


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


@pytest.mark.parametrize(
    ("login", "account", "said", "expected"),
    [
        (None, 0, None, "root"),
        (None, 0, "ada", "root (said to be ada)"),
        (None, 54_321, "ada", "user 54321 (said to be ada)"),
        (None, 0, "root", "root"),
        ("4294967295", 54_321, None, "user 54321"),
        ("4294967295", 54_321, "ada", "user 54321 (said to be ada)"),
        ("54321", 0, None, "user 54321 (as root)"),
        ("0", 54_321, "ada", "root (as user 54321)"),  # runuser, and a variable that does not count
        ("0", 0, "ada", "root"),
        ("no number", 0, None, "root"),
    ],
)
def test_the_operator_is_who_logged_in_else_the_account(
    tmp_path, monkeypatch, login, account, said, expected
):
    monkeypatch.setenv("USER", "somebody-else")
    monkeypatch.setenv("LOGNAME", "somebody-else")
    monkeypatch.delenv("SUDO_USER", raising=False)
    if said is not None:
        monkeypatch.setenv("SUDO_USER", said)
    monkeypatch.setattr("os.getuid", lambda: account)
    monkeypatch.setattr("billhook.cli.context.LOGIN_ID", tmp_path / "loginuid")
    if login is not None:
        (tmp_path / "loginuid").write_text(login)

    assert operator() == expected


def test_the_kernel_tells_who_logged_in():
    assert LOGIN_ID.read_text().isdigit()
