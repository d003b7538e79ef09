"""The sandbox's own description, and a fuzzer that holds it to its word."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate

from billhook.client import OPERATIONS
from billhook.client.operations import IMPLIED
from billhook.events import EVENT_TYPES
from billhook.resources import CatalogProductResponse
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.sandbox import GROUPS, Sandbox
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


def fuzz(sandbox: Running, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Schemathesis against a running sandbox."""
    options = ["--checks", "all", "--seed", "1", "--generation-database", "none", "--no-color"]
    options += ["--suppress-health-check", "all"]
    options += ["-H", "x-api-key: sandbox", "-H", f"Authorization: Bearer {sandbox.login()}"]
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{sandbox.url}/openapi/openapi.json"]
    return run_command([*command, *options, *arguments], cwd=folder, timeout=600)


def test_the_description_is_valid_and_has_the_23_webhooks(description: dict[str, Any]) -> None:
    validate(description)
    assert set(description["webhooks"]) == set(EVENT_TYPES)
    for name, webhook in description["webhooks"].items():
        parameters = {one["name"]: one["schema"] for one in webhook["post"]["parameters"]}
        assert parameters["X-Webhook-Type"] == {"type": "string", "const": name}
        assert {"webhook-id", "webhook-timestamp", "webhook-signature"} < set(parameters)
        body = description["components"]["schemas"][name]
        assert set(EVENT_TYPES[name].model_json_schema(by_alias=True).get("properties", {})) == set(
            body.get("properties", {})
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


def test_the_description_holds_no_secret(standing: Running, description: dict[str, Any]) -> None:
    secrets = (str(standing.sandbox.signing_secret), API_TOKEN, standing.sandbox.jwt_key.decode())

    assert [secret for secret in secrets if secret in json.dumps(description)] == []


def test_the_reference_shows_all_that_the_document_has_and_needs_no_login(
    standing: Running, description: dict[str, Any]
) -> None:
    ways = [standing.send("GET", path, None, {}) for path in ("/openapi", "/openapi/")]
    answer = standing.send("GET", "/pages/api", None, {})
    page = answer.body.decode()
    keys = {
        f"{method.upper()} {path}" for path, methods in description["paths"].items() for method in methods
    }
    linked = set(re.findall(r'href="#([^"]+)"', page))
    ids = set(re.findall(r' id="([^"]+)"', page))

    assert [(way.status, way.headers["Location"]) for way in ways] == [(302, "/pages/api")] * 2
    assert answer.status == 200
    assert [key for key in keys if f"<code>{key}</code>" not in page] == []
    assert {f"model-{name}" for name in description["components"]["schemas"]} <= ids
    assert {f"model-{name}" for name in description["webhooks"]} <= linked
    assert linked - ids == set()


def test_the_reference_runs_no_script_and_loads_nothing_from_elsewhere(standing: Running) -> None:
    answer = standing.send("GET", "/pages/api", None, {})

    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'self'")
    assert b"<script" not in answer.body
    assert not re.search(rb"""(?:src|href|action)=["'](?:https?:)?//""", answer.body)


def test_a_body_is_required_but_for_the_sandboxs_own_operations_without_a_required_field(
    description: dict[str, Any],
) -> None:
    told = {
        f"{method.upper()} {path}": operation["requestBody"]["required"]
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
        if "requestBody" in operation
    }
    assert {line for line, required in told.items() if not required} == {
        "POST /_sandbox/clock",
        "POST /_sandbox/customers",
        "POST /_sandbox/flush",
        "POST /_sandbox/secrets/rotate",
        "POST /_sandbox/trigger/{eventType}",
    }


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize("part", PARTS)
def test_a_fuzzer_finds_no_5xx_and_no_answer_against_its_schema(part: str, tmp_path: Path) -> None:
    with running(rate_limit="100000/second") as sandbox:
        found = fuzz(sandbox, tmp_path, "--max-examples", "5", *PARTS[part])

    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-2000:]


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
