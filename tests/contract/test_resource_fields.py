"""Every model of a resource against our transcription of the spec, and the transcription against the file.

Source: spec, "Resources and their fields", "Endpoints", "Errors". The file itself is not part of this
repository: BILLHOOK_SPEC names it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from billhook.resources import READ_ONLY, RESOURCES, WRITE_ONLY, Resource, StoredResource, sample
from support.specification import (
    altered,
    differences,
    kind_of,
    lists,
    objects_of,
    python_name,
    read_specification,
    unnoticed,
    without_description,
)

TRANSCRIPTION = tomllib.loads(Path(__file__).with_name("resource_fields.toml").read_text(encoding="utf-8"))
GROUPS = ("objects", "requests", "responses")
BESIDE = set(TRANSCRIPTION["beside"])
SHAPES = {name: fields for group in GROUPS for name, fields in TRANSCRIPTION[group].items()}
KIND = re.compile(r"(?P<kind>.*?)(?P<mark>[*?~+]?)(?: (?P<access>read-only|write-only))?")
MODELS: dict[str, type[Resource]] = {**RESOURCES, "Stored": StoredResource}

Fields = dict[str, str]


# --- the models as the transcription would write them ---------------------------------------------


def written_out(cls: type[Resource]) -> Fields:
    access = {READ_ONLY: " read-only", WRITE_ONLY: " write-only"}
    return {
        str(field.alias): kind_of(field.annotation)
        + ("*" if field.is_required() else "?")
        + "".join(text for marker, text in access.items() if marker in field.metadata)
        for field in cls.model_fields.values()
    }


def as_read(kind: str, group: str) -> str:
    """What a transcribed kind comes to in a model: its mark after the rule of its group."""
    parts = KIND.fullmatch(kind)
    unmarked = "?" if group == "objects" else "*"
    mark = {"": unmarked, "~": "?", "+": "*"}.get(parts["mark"], parts["mark"])
    kind = parts["kind"].removesuffix(" or null")
    listed_or_said = {"integer from 1": "integer", "date as string": "date"}
    kind = "string" if kind.endswith(" or more") else listed_or_said.get(kind, kind)
    return kind + mark + (f" {parts['access']}" if parts["access"] else "")


def wanted(transcription: dict[str, Any]) -> dict[str, Fields]:
    """Every model that the transcription asks for, with its fields."""
    found = {
        name: {field: as_read(kind, group) for field, kind in fields.items()}
        for group in GROUPS
        for name, fields in transcription[group].items()
    }
    for name, described in transcription["same"].items():
        of, _, all_optional = described.partition(", ")
        found[name] = {
            field: kind.replace("*", "?") if all_optional else kind
            for field, kind in found[of].items()
            if field != "deletedAt"
        }
    for name in transcription["stored"]:
        found[name] = found[name] | found["Stored"]
    return found


def models_and(transcription: dict[str, Any]) -> list[str]:
    """What the models have otherwise than `transcription`."""
    return differences(wanted(transcription), {name: written_out(cls) for name, cls in MODELS.items()})


ALTERED_KINDS = [
    ("objects", "Plan", {"price": "number"}, "Plan.price: number? is transcribed, the model has None"),
    ("objects", "Plan", {"status": None}, "the model has string? read-only"),
    ("objects", "Plan", {"name": "string"}, "string? is transcribed, the model has string? read-only"),
    ("objects", "Contact", {"email": "string*"}, "string* is transcribed, the model has string?"),
    ("objects", "Contact", {"phone": "string read-only"}, "string? read-only is transcribed"),
    ("objects", "Duration", {"value": "integer"}, "integer? is transcribed, the model has number?"),
    ("objects", "UsageWindow", {"start": "string"}, "the model has date?"),
    ("objects", "CloudUsageResult", {"partnerSubmission": "object"}, "map of string to Partner"),
    ("objects", "ProductGroup", {"products": "array of Pricing"}, "array of ContractProduct?"),
    ("requests", "CreditDeduction", {"creditAmount": "number?"}, "the model has number*"),
    ("requests", "LoginRequest", {"refreshToken": "string*"}, "the model has string* write-only"),
    ("responses", "DataPoint", {"values": "map of string to string"}, "map of string to number*"),
    ("responses", "InvoiceList", {"invoices": "array"}, "InvoiceList: only in the transcription"),
]


def test_every_model_has_exactly_the_fields_of_the_transcription_and_another_would_be_noticed():
    assert models_and(TRANSCRIPTION) == [], "resource_fields.toml has what the models have"
    for group, name, change, told in ALTERED_KINDS:
        (difference,) = models_and(altered(TRANSCRIPTION, group, name, change))
        assert told in difference
    objects = {name: fields for name, fields in TRANSCRIPTION["objects"].items() if name != "UsageWindow"}
    assert models_and({**TRANSCRIPTION, "objects": objects}) == ["UsageWindow: only in the models"]


# --- what annotations do not show -----------------------------------------------------------------


def fields_of_kind(ending: str) -> list[tuple[str, str, str]]:
    kinds = {
        (name, field): KIND.fullmatch(kind)["kind"]
        for name, fields in SHAPES.items()
        for field, kind in fields.items()
    }
    return [(*place, kind.removesuffix(ending)) for place, kind in kinds.items() if kind.endswith(ending)]


def test_listed_values_are_recognised_and_others_stay_text():
    listed = [(name, field, kind.split(", ")) for name, field, kind in fields_of_kind(" or more")]

    assert listed
    assert [place for *place, values in listed if not lists(RESOURCES[place[0]], place[1], values)] == []


def test_a_number_that_counts_from_one_does():
    for name, field, _ in fields_of_kind("integer from 1"):
        cls = RESOURCES[name]

        assert getattr(sample(cls, **{field: 1}), python_name(cls, field)) == 1
        with pytest.raises(ValidationError, match="greater than or equal to 1"):
            sample(cls, **{field: 0})


def test_every_resource_and_field_has_a_description_and_source():
    assert without_description(MODELS.values()) == []
    assert [name for name, cls in MODELS.items() if "Source: spec, " not in (cls.__doc__ or "")] == []


# --- the transcription against the file -----------------------------------------------------------


def as_stated(kind: str) -> Any:
    """What the spec can say of a transcribed kind, with the shapes written out."""
    kind = KIND.fullmatch(kind)["kind"].removesuffix(" or any")
    if kind == "array":
        return ["any"]
    if kind.endswith(" or more"):
        return {"one of": kind.removesuffix(" or more").split(", ")}
    if kind.startswith("array of "):
        return [as_stated(kind.removeprefix("array of "))]
    if kind.startswith("map of string to "):
        return {"map": as_stated(kind.removeprefix("map of string to "))}
    if kind in SHAPES:
        return {
            field: as_stated(inner)
            for field, inner in SHAPES[kind].items()
            if f"{kind}.{field}" not in BESIDE
        }
    return {"integer from 1": kind, "date as string": "string"}.get(kind, kind)


def transcribed() -> dict[str, dict[str, tuple[str, Any]]]:
    """By the spec's names, as `objects_of` has them."""
    return {
        title: {
            field: (re.sub("[~+]", "", KIND.fullmatch(kind)["mark"]), as_stated(kind))
            for field, kind in SHAPES[name].items()
            if f"{name}.{field}" not in BESIDE
        }
        for name, title in TRANSCRIPTION["sources"].items()
    }


def shapes_within(kind: Any) -> set[str]:
    names = set(re.findall(r"\b[A-Z]\w+", kind)) & set(SHAPES)
    return names.union(*(shapes_within(inner) for name in names for inner in SHAPES[name].values()))


def test_every_shape_stands_in_something_that_has_a_place_in_the_spec():
    placed = set(TRANSCRIPTION["sources"]) | (BESIDE & set(SHAPES))

    reached = placed.union(*(shapes_within(kind) for name in placed for kind in SHAPES[name].values()))

    assert reached == set(SHAPES)


# Bodies that are the same as another's, and are not transcribed twice.
REPEATED = {
    "GET /catalogProducts, query": "GET /customFields, query",
    "GET /catalogProducts/{catalogProductId}, response": "POST /catalogProducts, response",
    "PUT /catalogProducts/{catalogProductId}, response": "POST /catalogProducts, response",
    "GET /customers/integration/{integrationType}/{integrationId}, response": (
        "PUT /customers/{customerId}, response"
    ),
    "DELETE /contracts/{contractId}, response": "POST /contracts, response",
    "POST /catalogProducts, request": "Catalog product",
}


def test_the_transcription_equals_the_spec():
    spec = read_specification()
    stated, ours = objects_of(spec), transcribed()

    for title, same in REPEATED.items():
        assert stated.pop(title) == stated[same], title
    told = "what the spec does not have is named under `beside` in resource_fields.toml"
    assert stated.keys() == ours.keys(), told
    assert [title for title in ours if stated[title] != ours[title]] == [], told
    # The control: an altered specification would be noticed.
    assert unnoticed(spec, ALTERED, stated_of_ours) == []


def stated_of_ours(text: str) -> dict[str, Any]:
    stated = objects_of(text)
    return {title: stated.get(title) for title in TRANSCRIPTION["sources"].values()}


ALTERED = [
    ("| ref | string | yes |", "| ref | string | no |"),
    ("| startDate* |", "| startDate? |"),
    ("additionally returns deletedAt (string)", "returns no more"),
    ("billingDay: integer (1 or greater)", "billingDay: integer"),
    ("{startTime, endTime} date-times", "{startTime, endTime}"),
    ("lineItems | array of {invoiceId,", "lineItems | array of {lineId,"),
    ("exceededAmount (numbers), hasAccess", "exceededAmount, hasAccess"),
    ("(map of string to {receivedAt", "({receivedAt"),
    ("`createdAt` and `updatedAt` (date-time)", "`createdAt` (date-time)"),
    ("the values InReview and Active appear", "the values Draft and Active appear"),
    ("PendingPayment, Overdue. Transitions", "PendingPayment. Transitions"),
    ("`{events*: array of Event}`", "`{events*: array of string}`"),
    ("matchedCustomer: string or null", "matchedCustomer: string"),
    ("threshold?: number, recurringThreshold", "threshold: number, recurringThreshold"),
    ("| rate_limit_error | rate_limit_exceeded |", "| rate_limit_error | slow_down |"),
]


READ_ONLY_BY_OUR_READING = {
    "Contract.customFieldValues",  # "Stored values; same shape as the customer's"
    "Contract.deletedAt",  # "additionally returns"
    "CreditLedgerEntry.createdAt", "CreditLedgerEntry.id",
    "Customer.openAmount", "Customer.overdueAmount", "Customer.paidAmount",  # sums over invoices
    "Customer.pendingPaymentAmount", "Customer.totalOutstandingAmount",
    "Stored.createdAt", "Stored.id", "Stored.updatedAt",  # "Returned"
}  # fmt: skip


def test_every_field_that_the_spec_calls_read_only_is_read_only():
    spec = read_specification()
    ours = {
        f"{name}.{field}"
        for name, fields in TRANSCRIPTION["objects"].items()
        for field, kind in fields.items()
        if kind.endswith("read-only") and f"{name}.{field}" not in BESIDE
    }
    text = spec.split("\n## Resources and their fields\n")[1].split("\n## ")[0]
    stated = {f"Customer.{field}" for field in re.findall(r"^\| (\w+) \|[^|]*\|.*Read-only.*\|$", text, re.M)}
    for name in re.findall(r"^### (\w+) \(read-only in this interface\)$", text, re.M):
        stated |= {f"{name}.{field}" for field in TRANSCRIPTION["objects"][name]} - BESIDE

    assert len(stated) == 1 + 4 + 12
    assert ours - stated == READ_ONLY_BY_OUR_READING
    assert stated <= ours
