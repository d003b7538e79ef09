"""Catalog products. Source: spec, "Resources and their fields", Catalog product; "Endpoints"."""

from __future__ import annotations

from typing import Any

from support.sandbox import TAKEN, Running, check_refused

WHOLE = {
    "name": "API calls",
    "description": "Calls of the public API",
    "productCode": "API-1",
    "disableDescription": True,
    "externalId": "sku-100",
}


def made(sandbox: Running, **fields: Any) -> Any:
    """A new product."""
    return sandbox.ok("POST", "/catalogProducts", {"name": "API calls", **fields})["catalogProduct"]


def test_every_field_of_a_product_is_stored(sandbox: Running) -> None:
    """Source: spec, "Endpoints", Catalog products: create and get."""
    product = made(sandbox, **WHOLE)
    read = sandbox.ok("GET", f"/catalogProducts/{product['id']}")["catalogProduct"]

    stamps = {"id": product["id"], "createdAt": "2026-01-10T12:00:00Z", "updatedAt": "2026-01-10T12:00:00Z"}
    assert read == product == {**WHOLE, **stamps}


def test_a_product_update_changes_only_the_given_fields(sandbox: Running) -> None:
    """Source: spec, "Endpoints", Catalog products: update, all optional."""
    product = made(sandbox, **WHOLE)
    sandbox.real.advance(seconds=60)
    path = f"/catalogProducts/{product['id']}"
    changed = sandbox.ok("PUT", path, {"productCode": "API-2"})["catalogProduct"]
    untouched = sandbox.ok("PUT", path, {})["catalogProduct"]

    assert changed == {**product, "productCode": "API-2", "updatedAt": "2026-01-10T12:01:00Z"}
    assert untouched == changed


def test_an_external_id_is_unique_until_it_is_removed(sandbox: Running) -> None:
    """A choice of ours."""
    first = made(sandbox, externalId="sku-1")
    second = made(sandbox)
    path = f"/catalogProducts/{second['id']}"
    created = sandbox.call("POST", "/catalogProducts", {"name": "Other", "externalId": "sku-1"})
    updated = sandbox.call("PUT", path, {"externalId": "sku-1"})
    same = sandbox.call("PUT", f"/catalogProducts/{first['id']}", {"externalId": "sku-1"})
    sandbox.ok("PUT", f"/catalogProducts/{first['id']}", {"externalId": None})
    free = sandbox.call("PUT", path, {"externalId": "sku-1"})

    assert created.error() == updated.error() == TAKEN
    assert created.json["param"] == updated.json["param"] == "externalId"
    assert (same.status, free.status) == (200, 200)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": None}, "name"),
    ({"name": " "}, "name"),
    ({"disableDescription": "yes"}, "disableDescription"),
    ({"externalId": ""}, "externalId"),
    ({"externalId": "x" * 256}, "externalId"),
]


def test_a_field_of_another_type_or_form_is_refused_by_its_name(sandbox: Running) -> None:
    """Source: spec, "Errors", param."""
    product = made(sandbox)
    for method, path in (("POST", "/catalogProducts"), ("PUT", f"/catalogProducts/{product['id']}")):
        answers = [sandbox.call(method, path, {"name": "API calls", **fields}) for fields, _ in WRONG]

        check_refused(answers, [param for _, param in WRONG])
    assert sandbox.ok("GET", "/catalogProducts")["catalogProducts"] == [product]
