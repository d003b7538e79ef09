"""The names that usage comes under. Source: spec, "Resources and their fields", Customer, aliases."""

from __future__ import annotations

from billhook.sandbox.billing import customers
from support.sandbox import TAKEN, Running


def made(sandbox: Running, **fields: object) -> str:
    """The id of a new customer."""
    answer = sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme Ltd", **fields})
    return str(answer["customer"]["id"])


def match(sandbox: Running, *names: str) -> dict[str, str]:
    with sandbox.sandbox.service.transaction(writes=False) as tx:
        return customers.ids_by_alias(tx, names)


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
