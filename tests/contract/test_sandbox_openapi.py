"""The sandbox's own description, and a fuzzer that holds it to its word."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import pytest
from markupsafe import escape
from openapi_schema_validator import OAS31Validator, oas31_format_checker
from openapi_spec_validator import validate
from pydantic import Field

from billhook.client import OPERATIONS
from billhook.client.operations import IMPLIED
from billhook.events import EVENT_TYPES, Event, sample
from billhook.events.base import _registered
from billhook.fields import strict_json
from billhook.resources import CatalogProductResponse
from billhook.sandbox.openapi import document
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.sandbox import GROUPS, Sandbox
from billhook.signing import BodyJWT, Scheme, StandardWebhooks, TimestampedHMAC, TimestampedRSA
from support.processes import run_command
from support.sandbox import API_TOKEN, Running, running

TAGS = {"auth", "events", "customers", "meters", "contracts", "invoices", "credits", "webhooks"}


@pytest.fixture(scope="module")
def standing() -> Iterator[Running]:
    """A sandbox for tests that read what it says of itself."""
    with running() as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def description(standing: Running) -> dict[str, Any]:
    """The OpenAPI document."""
    answer = standing.send("GET", "/openapi/openapi.json", None, {})
    assert answer.status == 200
    found: dict[str, Any] = answer.json
    return found


BATCHES = ("/events", "/v2/events", "/events/dry-run")
OF_THE_SESSION = ("/_sandbox/tokens", "/_sandbox/clock")
TWOFOLD = ("/_sandbox/contracts/{contractId}/activate",)
OTHERS = (*BATCHES, *OF_THE_SESSION, *TWOFOLD)
ALLOW = "allow_header_conformance"
# What fits the schema is not always accepted: "another product has this externalId" is in no schema.
ASIDE = "positive_data_acceptance"


def paths(kind: str, names: tuple[str, ...]) -> list[str]:
    return [part for name in names for part in (f"--{kind}-path", name)]


PARTS = {
    "all but the others": ["--exclude-checks", ASIDE, *paths("exclude", OTHERS)],
    # A batch is taken with its wrong events: they are listed in the answer.
    "batches of events": [*paths("include", BATCHES), "--exclude-checks", f"{ASIDE},negative_data_rejection"],
    # For GET it is the address of the contract with the externalId ".../activate", and Allow says so.
    "what is two addresses": [*paths("include", TWOFOLD), "--exclude-checks", f"{ASIDE},{ALLOW}"],
    # These end the fuzzer's own session: after that, all is 401.
    "what ends a session": [*paths("include", OF_THE_SESSION), "--exclude-checks", ASIDE],
}


SINGLE_REQUESTS = ("--phases", "examples,coverage,fuzzing")  # links are walked by a test of their own
WALK = ("_sandbox/customers_create", "contracts_create", "invoices_list_all", "credits_list_credits",
        "_sandbox/invoices_approve", "_sandbox/invoices_pay", "credits_top_up")  # fmt: skip


def fuzz(sandbox: Running, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Schemathesis against a running sandbox."""
    options = ["--checks", "all", "--seed", "1", "--generation-database", "none", "--no-color"]
    options += ["--suppress-health-check", "all"]
    options += ["-H", "x-api-key: sandbox", "-H", f"Authorization: Bearer {sandbox.login()}"]
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{sandbox.url}/openapi/openapi.json"]
    return run_command([*command, *options, *arguments], cwd=folder, timeout=600)


def test_the_description_is_valid_and_has_the_23_webhooks(description: dict[str, Any]) -> None:
    validate(description)
    assert [server["url"] for server in description["servers"]] == ["/"]  # where the document comes from
    assert set(description["webhooks"]) == set(EVENT_TYPES)
    for name, webhook in description["webhooks"].items():
        parameters = {one["name"]: one["schema"] for one in webhook["post"]["parameters"]}
        assert parameters == {"X-Webhook-Type": {"type": "string", "const": name}}
        body = description["components"]["schemas"][name]
        assert set(EVENT_TYPES[name].model_json_schema(by_alias=True).get("properties", {})) == set(
            body.get("properties", {})
        )


@pytest.mark.parametrize(
    "scheme",
    [
        StandardWebhooks(),
        TimestampedHMAC("X-Odd!Name"),
        TimestampedRSA(key_id_header="X-Webhook-Key"),
        BodyJWT("X-Token"),
    ],
    ids=lambda scheme: scheme.name,
)
def test_every_webhook_is_secured_by_the_headers_of_its_signature(scheme: Scheme) -> None:
    described: Any = document(GROUPS, scheme)

    validate(described)
    for webhook in described["webhooks"].values():
        (together,) = webhook["post"]["security"]
        schemes = [described["components"]["securitySchemes"][name] for name in together]
        assert [(one["type"], one["in"], one["name"]) for one in schemes] == [
            ("apiKey", "header", header) for header in scheme.headers
        ]
        assert all(one["description"].startswith(f"Of the signature ({scheme.name}): ") for one in schemes)


def examples(part: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every example below `part`: its place, its schema, its value."""
    if isinstance(part, dict):
        # Beside `schema` in a parameter or a body; else the examples are in the schema itself.
        schema = part.get("schema", part)
        if isinstance(part.get("examples"), list):
            yield from ((f"{place}/examples/{n}", schema, one) for n, one in enumerate(part["examples"]))
        if "example" in part:
            yield f"{place}/example", schema, part["example"]
    below = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for name, one in below:
        if name not in ("examples", "example"):
            yield from examples(one, f"{place}/{name}")


def mistakes(description: dict[str, Any], schema: Any, value: Any) -> list[str]:
    """What is wrong with a value by a schema of the document."""
    whole = {**schema, "components": description["components"]}
    return [
        each.message for each in OAS31Validator(whole, format_checker=oas31_format_checker).iter_errors(value)
    ]


def test_every_example_fits_its_schema(description: dict[str, Any]) -> None:
    shown = list(examples(description))

    assert len(shown) > 500
    assert [
        (place, problems)
        for place, schema, value in shown
        if (problems := mistakes(description, schema, value))
    ] == []


@pytest.mark.parametrize("wrong", ["81.25", True, None])
def test_control_an_example_that_is_no_number_is_found(description: dict[str, Any], wrong: object) -> None:
    schema = description["components"]["schemas"]["CommitmentUsageCrossed"]["properties"]["pctUsage"]

    assert mistakes(description, schema, 81.25) == []
    assert mistakes(description, schema, wrong) == [f"{wrong!r} is not of type 'number'"]


def test_the_example_of_a_webhook_is_its_sample_and_one_without_optional_fields_fits_as_well(
    standing: Running,
) -> None:
    described: Any = strict_json.loads(standing.send("GET", "/openapi/openapi.json", None, {}).body)

    for name, webhook in described["webhooks"].items():
        content = webhook["post"]["requestBody"]["content"]["application/json"]
        event = sample(EVENT_TYPES[name])
        # As the sandbox sends it: digit for digit.
        assert strict_json.dumps(content["example"]) == event.to_json()
        fields = {f.alias: f.is_required() for f in EVENT_TYPES[name].model_fields.values()}
        least = {field: value for field, value in content["example"].items() if fields[field]}
        assert mistakes(described, content["schema"], least) == []


def test_a_type_of_ones_own_without_a_sample_is_described_without_an_example() -> None:
    class StampSold(Event):
        stamp: Annotated[str, Field(pattern="^[A-Z]{9}$")]

    try:
        described: Any = document(GROUPS, TimestampedHMAC("X-Stamps"))
    finally:
        del _registered["StampSold"]

    content = described["webhooks"]["StampSold"]["post"]["requestBody"]["content"]["application/json"]
    assert content == {"schema": {"$ref": "#/components/schemas/StampSold"}}
    assert (
        "example" in described["webhooks"]["PingTest"]["post"]["requestBody"]["content"]["application/json"]
    )


def test_every_operation_of_the_client_is_described_and_no_other_but_the_sandboxs_own(
    description: dict[str, Any],
) -> None:
    wanted = {operation.name for operation in (*OPERATIONS.values(), *IMPLIED.values())}

    told = {
        f"{method.upper()} {path}" for path, methods in description["paths"].items() for method in methods
    }

    assert {line for line in told if "/_sandbox" not in line} == wanted


def test_the_tags_are_those_of_the_specification_and_the_sandboxs_own(description: dict[str, Any]) -> None:
    """Source: spec, "What the service does", the last sentence."""
    used = {
        tag: path
        for path, methods in description["paths"].items()
        for operation in methods.values()
        for tag in operation["tags"]
    }

    of_the_specification = {tag for tag, path in used.items() if not path.startswith("/_sandbox")}
    assert of_the_specification == TAGS
    assert all(tag.startswith("_sandbox/") for tag in set(used) - TAGS)
    assert {tag["name"] for tag in description["tags"]} == set(used)
    assert [tag["name"] for tag in description["tags"] if not tag["description"].endswith(".")] == []


def test_the_description_holds_no_secret(standing: Running, description: dict[str, Any]) -> None:
    secrets = (str(standing.sandbox.signing_secret), API_TOKEN, standing.sandbox.jwt_key.decode())

    assert [secret for secret in secrets if secret in json.dumps(description)] == []


def test_the_reference_lists_all_operations_of_the_document_and_needs_no_login(
    standing: Running, description: dict[str, Any]
) -> None:
    ways = [standing.send("GET", path, None, {}) for path in ("/openapi", "/openapi/")]
    answer = standing.send("GET", "/pages/api", None, {})
    page = answer.body.decode()
    keys = {
        f"{method.upper()} {path}" for path, methods in description["paths"].items() for method in methods
    }
    ids = set(re.findall(r' id="([^"]+)"', page))

    assert [(way.status, way.headers["Location"]) for way in ways] == [(302, "/pages/api")] * 2
    assert answer.status == 200
    assert [key for key in keys if f"<code>{key}</code>" not in page] == []
    assert {key.replace(" ", "") for key in keys} <= ids
    assert [tag for tag in description["tags"] if escape(tag["description"]) not in page] == []


@pytest.mark.parametrize(
    ("find", "there", "gone"),
    [
        ("invoice post", "POST /_sandbox/invoices/", "<code>GET /customers</code>"),
        ("nowhere", "No operation has these words.", "<code>"),
        ('"><script>', "No operation has these words.", "<script>"),
    ],
)
def test_the_reference_is_searched_by_words(standing: Running, find: str, there: str, gone: str) -> None:
    page = standing.send("GET", f"/pages/api?{urlencode({'find': find})}", None, {}).body.decode()
    listed = page.partition("</form>")[2]

    assert there in listed
    assert gone not in listed.replace("<code>/_sandbox</code>", "")
    assert f'value="{escape(find)}"' in page


def test_a_body_is_required_but_for_the_sandboxs_own_operations_that_need_no_field(
    description: dict[str, Any],
) -> None:
    told = {
        f"{method.upper()} {path}": operation["requestBody"]["required"]
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
        if "requestBody" in operation
    }
    assert {line for line, required in told.items() if not required} == {
        "POST /_sandbox/flush",
        "POST /_sandbox/secrets/rotate",
        "POST /_sandbox/trigger/{eventType}",
    }


def links_of(description: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Each link by the operation whose answer has it, and its name."""
    return {
        (operation["operationId"], name): link
        for methods in description["paths"].values()
        for operation in methods.values()
        for name, link in operation["responses"]["200"].get("links", {}).items()
    }


def by_id(description: dict[str, Any]) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Method, path and description of each operation."""
    return {
        operation["operationId"]: (method.upper(), path, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    }


def at(value: Any, pointer: str) -> Any:
    """What is at a JSON pointer."""
    for name in pointer.strip("/").split("/"):
        value = value[int(name) if isinstance(value, list) else name]
    return value


def evaluated(value: Any, answer: Any) -> Any:
    """A value of a link, with that of the answer for an expression."""
    is_expression = isinstance(value, str) and value.startswith("$response.body#")
    return at(answer, value.removeprefix("$response.body#")) if is_expression else value


def test_every_link_leads_to_an_operation_that_has_its_parameters(description: dict[str, Any]) -> None:
    operations, links = by_id(description), links_of(description)

    assert len(links) > 50
    for place, link in links.items():
        _, _, target = operations[link["operationId"]]
        known = {parameter["name"] for parameter in target["parameters"]}
        needed = {parameter["name"] for parameter in target["parameters"] if parameter["required"]}
        given = set(link.get("parameters", {}))
        assert needed <= given <= known, place
        assert ("requestBody" in link) is ("requestBody" in target) or target["operationId"].endswith(
            "update"
        ), place


def test_the_links_lead_from_a_customer_to_its_contract_its_invoices_and_its_credits() -> None:
    with running() as sandbox:
        described = sandbox.send("GET", "/openapi/openapi.json", None, {}).json
        operations = by_id(described)

        def follow(operation_id: str, answer: Any, name: str) -> tuple[str, Any]:
            """Where a link of an operation's answer leads, and what is answered there."""
            link = links_of(described)[operation_id, name]
            method, path, target = operations[link["operationId"]]
            query = {}
            for parameter in target["parameters"]:
                if parameter["name"] in link.get("parameters", {}):
                    value = evaluated(link["parameters"][parameter["name"]], answer)
                    if parameter["in"] == "path":
                        path = path.replace(f"{{{parameter['name']}}}", value)
                    else:
                        query[parameter["name"]] = value
            body = {name: evaluated(value, answer) for name, value in link.get("requestBody", {}).items()}
            address = f"{path}?{urlencode(query)}" if query else path
            return link["operationId"], sandbox.ok(method, address, body or None)

        customer = "_sandbox/customers_create", sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme"})
        contract = follow(*customer, "sell")
        listed = follow(*contract, "invoices")
        approved = follow(*listed, "approve")
        paid = follow(*approved, "pay")
        topped = follow(*customer, "topUp")
        granted = follow(*topped, "approve")
        entries = follow(*granted, "credits")
        for each in ("customer", "contracts", "invoices", "credits"):
            for place in (customer, contract, listed, approved, paid, topped):
                follow(*place, each)
        follow(*contract, "contract")
        follow(*contract, "delete")

    assert paid[1]["invoice"]["billingStatus"] == "Paid"
    assert [entry["amount"] for entry in entries[1]["entries"]] == [100]


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize("part", PARTS)
def test_a_fuzzer_finds_no_5xx_and_no_answer_against_its_schema(part: str, tmp_path: Path) -> None:
    with running(rate_limit="100000/second") as sandbox:
        found = fuzz(sandbox, tmp_path, "--max-examples", "5", *SINGLE_REQUESTS, *PARTS[part])

    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_fuzzer_walks_from_customers_to_their_contracts_invoices_and_credits(tmp_path: Path) -> None:
    walk = [part for name in WALK for part in ("--include-operation-id", name)]
    # Almost no text of random characters with a NUL is taken, and the walk would end at the first customer.
    walk += ["--phases", "stateful", "--mode", "positive", "--generation-allow-x00", "false"]
    with running(rate_limit="100000/second") as sandbox:
        found = fuzz(sandbox, tmp_path, "--max-examples", "40", "--exclude-checks", ASIDE, *walk)
        (covered,) = re.findall(r"API Links: +(\d+) covered", found.stdout)

    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-2000:]
    assert int(covered) > 0, found.stdout[-8000:]


@pytest.mark.slow
def test_control_the_fuzzer_finds_an_answer_against_its_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    careless = OperationGroup("careless", prefix="/careless")

    @careless.operation("GET", "", gives=CatalogProductResponse)
    def get(call: Call[None]) -> bytes:
        """Answer something else than was said."""
        return b'{"catalogProduct": {"name": 7}}'

    monkeypatch.setattr("billhook.sandbox.sandbox.GROUPS", (*GROUPS[:1], careless))
    assert Sandbox.__module__ == "billhook.sandbox.sandbox"

    with running() as sandbox:
        found = fuzz(sandbox, tmp_path, "--max-examples", "3")

    assert found.returncode == 1
    assert "Response violates schema" in found.stdout
