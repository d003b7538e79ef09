"""The names that usage comes under. Source: spec, "Resources and their fields", Customer, aliases."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from billhook.sandbox.billing import customers
from support.sandbox import Running

TAKEN = (400, "invalid_request_error", "already_exists")


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


def test_usage_is_matched_by_alias_external_id_and_id(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Event, customerAlias: external id or alias."""
    first = made(sandbox, aliases=["a", "b"], externalId="x")
    second = made(sandbox, aliases=["c"])
    found = match(sandbox, "a", "b", "x", "c", first, second, "nobody", "A", "", "\0", "z" * 9999)

    assert found == {"a": first, "b": first, "x": first, "c": second, first: first, second: second}


def test_a_thousand_names_are_matched_at_once(sandbox: Running) -> None:
    """Source: spec, "Limits", events per batch."""
    first = made(sandbox, aliases=["a999"])
    found = match(sandbox, *(f"a{n}" for n in range(1000)))

    assert found == {"a999": first}


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


def test_of_many_that_want_a_name_at_once_one_gets_it(sandbox: Running) -> None:
    sandbox.ok("GET", "/_sandbox/customers")

    def create(n: int) -> int:
        return sandbox.call("POST", "/_sandbox/customers", {"name": f"{n}", "aliases": ["a"]}).status

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(create, range(8)))
    [customer] = sandbox.ok("GET", "/_sandbox/customers")["customers"]
    found = match(sandbox, "a")

    assert statuses == [200] + [400] * 7
    assert found == {"a": customer["id"]}


def test_a_repeated_alias_of_a_customer_is_stored_once(sandbox: Running) -> None:
    first = made(sandbox, aliases=["a", "b", "a"], externalId="a")
    customer = sandbox.ok("GET", f"/_sandbox/customers/{first}")["customer"]
    again = sandbox.call("PUT", f"/customers/{first}", {"aliases": [first, "a"]})

    assert customer["aliases"] == ["a", "b"]
    assert again.json["customer"]["aliases"] == [first, "a"]


def test_usage_of_an_unknown_alias_raises_anonymous_customer(sandbox: Running) -> None:
    """Source: spec, "States and transitions"; "Events", rule 5: AnonymousCustomer."""
    [unknown] = made_up(sandbox, ["who"])
    customer = sandbox.ok("GET", f"/_sandbox/customers/{unknown}")["customer"]
    found = match(sandbox, "who")
    raised = sandbox.raised()

    assert (customer["name"], customer["aliases"], customer["status"]) == ("who", ["who"], "Active")
    assert found == {"who": unknown}
    assert raised == [
        ("AnonymousCustomer", {"id": unknown, "name": "who", "externalId": None, "aliases": ["who"]})
    ]


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


def test_an_anonymous_customer_that_is_changed_is_an_ordinary_one(sandbox: Running) -> None:
    """A choice of ours."""
    first, second = made_up(sandbox, ["who", "else"])
    sandbox.ok("PUT", f"/customers/{first}", {"name": "Acme Ltd", "externalId": "x"})
    listed = sandbox.ok("GET", "/_sandbox/customers?anonymous=true")["customers"]
    raised = [kind for kind, _ in sandbox.raised()]

    assert [each["id"] for each in listed] == [second]
    assert raised == ["AnonymousCustomer", "AnonymousCustomer"]
