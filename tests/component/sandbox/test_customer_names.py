"""The names that usage comes under. Source: spec, "Resources and their fields", Customer, aliases."""

from __future__ import annotations

from collections.abc import Iterable

from billhook.sandbox.billing import customers
from support.sandbox import TAKEN, Running


def made(sandbox: Running, **fields: object) -> str:
    """The id of a new customer."""
    answer = sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme Ltd", **fields})
    return str(answer["customer"]["id"])


def match(sandbox: Running, *names: str) -> dict[str, str]:
    with sandbox.sandbox.service.transaction(writes=False) as tx:
        return customers.ids_by_alias(tx, names)


def made_up(sandbox: Running, names: Iterable[str]) -> list[str]:
    """The ids of anonymous customers of these names."""
    with sandbox.sandbox.service.transaction(writes=True) as tx:
        return [customers.make_anonymous(tx, name) for name in names]


def test_a_name_that_was_taken_away_matches_no_more_and_another_customer_may_have_it(
    sandbox: Running,
) -> None:
    first = made(sandbox, aliases=["a", "b"], externalId="x")
    sandbox.ok("PUT", f"/customers/{first}", {"aliases": ["b"], "externalId": None})
    left = match(sandbox, "a", "b", "x")
    second = made(sandbox, aliases=["a"], externalId="x")
    taken_over = match(sandbox, "a", "b", "x")

    assert left == {"b": first}
    assert taken_over == {"a": second, "b": first, "x": second}


def test_a_name_belongs_to_one_customer_be_it_an_alias_an_external_id_or_an_id(sandbox: Running) -> None:
    """A choice of ours: usage under a name is one customer's."""
    first = made(sandbox, aliases=["a"], externalId="x")
    second = made(sandbox, aliases=["b"])
    refused = {
        name: sandbox.call("PUT", f"/customers/{second}", body)
        for name, body in {
            "aliases.1": {"aliases": ["b", "a"]},
            "externalId": {"externalId": "x"},
            "aliases.0": {"aliases": ["x"]},
        }.items()
    }
    crossed = sandbox.call("PUT", f"/customers/{second}", {"externalId": "a"})
    by_id = sandbox.call("PUT", f"/customers/{second}", {"aliases": [first]})
    several = sandbox.call("POST", "/_sandbox/customers", {"name": "C", "aliases": ["a", "b", "c"]})
    found = match(sandbox, "a", "b", "c", "x")

    assert {answer.error() for answer in (*refused.values(), crossed, by_id, several)} == {TAKEN}
    assert {answer.json["param"] for answer in refused.values()} == set(refused)
    assert {each["param"] for each in several.json["params"]} == {"aliases.0", "aliases.1"}
    assert found == {"a": first, "x": first, "b": second}


def test_a_repeated_alias_of_a_customer_is_stored_once(sandbox: Running) -> None:
    first = made(sandbox, aliases=["a", "b", "a"], externalId="a")
    customer = sandbox.ok("GET", f"/_sandbox/customers/{first}")["customer"]
    again = sandbox.call("PUT", f"/customers/{first}", {"aliases": [first, "a"]})

    assert customer["aliases"] == ["a", "b"]
    assert again.json["customer"]["aliases"] == [first, "a"]


def test_an_alias_removed_from_a_former_anonymous_customer_is_free(sandbox: Running) -> None:
    """A choice of ours: once changed, it is an ordinary one."""
    [unknown] = made_up(sandbox, ["who"])
    sandbox.ok("PUT", f"/customers/{unknown}", {"name": "Who Ltd"})
    first = made(sandbox)
    refused = sandbox.call("PUT", f"/customers/{first}", {"aliases": ["who"]})
    sandbox.ok("PUT", f"/customers/{unknown}", {"aliases": []})
    accepted = sandbox.call("PUT", f"/customers/{first}", {"aliases": ["who"]})
    found = match(sandbox, "who")

    assert refused.error() == TAKEN
    assert accepted.status == 200
    assert found == {"who": first}
