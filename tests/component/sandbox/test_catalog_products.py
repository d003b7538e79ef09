"""Catalog products. Source: spec, "Resources and their fields", Catalog product; "Endpoints"."""

from __future__ import annotations

from typing import Any

from support.sandbox import TAKEN, Running

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
