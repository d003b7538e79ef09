"""The operations: their addresses, the rules that hold before anything is sent, and what imports cost."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from billhook.client import OPERATIONS, BillingClient
from billhook.errors import ConfigError, RuleBroken
from billhook.errors.program import install_command
from billhook.events import InvoiceApproved
from billhook.resources import Contract, Customer, sample
from billhook.settings import Settings
from support.billing_service import CLIENT_ID, REFRESH_TOKEN, answered
from support.processes import run_command, together

# --- addresses ------------------------------------------------------------------------------------


def test_path_parameters_are_percent_encoded(service, client):
    deleted = json.loads(sample(Contract).to_json())
    segments = {
        "agr-77": "agr-77",
        "2026/77": "2026%2F77",
        "../plans": "..%2Fplans",
        "a b?c#d%e": "a%20b%3Fc%23d%25e",
        "%2e%2e": "%252e%252e",
        "naïve☃": "na%C3%AFve%E2%98%83",
        "a\r\nX: y": "a%0D%0AX%3A%20y",
    }
    service.instead = answered(200, {"contract": deleted})

    for given_id in segments:
        client.contracts.delete(given_id)

    assert service.lines() == [f"DELETE /contracts/{segment}" for segment in segments.values()]


def test_ids_that_a_url_cannot_carry_are_refused(service, client):
    for value in ("", ".", "..", "\ud800"):
        with pytest.raises(ValueError, match=r"contractId is '.*': that cannot be a part of an address"):
            client.contracts.delete(value)
    with pytest.raises(TypeError, match="planId must be text, got int"):
        client.plans.get(7)

    assert service.taken == []


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_two_texts_come_out_of_a_path_as_they_went_in(first, second):
    try:
        address = OPERATIONS["customers.get_by_integration"].address((first, second))
    except ValueError:
        assert {".", ".."} & {first, second} or any("\ud800" <= each <= "\udfff" for each in first + second)
        return

    assert address.isascii()
    assert [unquote(part) for part in address.split("/")] == ["", "customers", "integration", first, second]


# --- rules ----------------------------------------------------------------------------------------

NEW = {"startDate": "2026-02-01T00:00:00Z", "customerId": "cus_1"}


BROKEN_RULES = {
    "planId and products are mutually exclusive": lambda c: c.contracts.create(
        {**NEW, "planId": "p", "products": [{}]}
    ),
    "name is required when planId is not provided": lambda c: c.contracts.create(NEW),
    "at most one of customerId and customerExternalId may be given": lambda c: c.contracts.list(
        customer_id="a", customer_external_id="b"
    ),
    "limit is 1001": lambda c: c.events.query("2026-01-01", "2026-02-01", limit=1_001),
    "threshold and recurringThreshold apply to": lambda c: c.webhooks.subscribe(
        "https://a.example", InvoiceApproved, threshold=80
    ),
    "creditProductId, balanceKind, grantAmount, schedule": lambda c: c.credits.top_up(
        "cus_1", {"name": "pack"}
    ),
}
INVALID_REQUESTS = [
    lambda c: c.catalog_products.create({}),
    lambda c: c.measurements.create({"customerId": "a", "meterId": "m", "value": "many"}),
    lambda c: c.customers.update("cus_1", {"aliases": "acme"}),
    lambda c: c.events.query("yesterday", datetime(2026, 1, 1, tzinfo=UTC)),
    lambda c: c.invoices.list(issued_after="some day"),
    lambda c: c.contracts.create(sample(Contract)),
]


def test_a_broken_rule_or_an_invalid_request_raises_before_sending(service, client):
    for text, call in BROKEN_RULES.items():
        with pytest.raises(RuleBroken, match=text):
            call(client)
    for call in INVALID_REQUESTS:
        with pytest.raises(ValidationError):
            call(client)

    assert service.taken == []


def test_a_body_may_be_a_model_or_a_mapping_in_either_spelling(service, client):
    customer = json.loads(sample(Customer).to_json())
    service.always("PUT /customers/cus_1", answered(200, {"customer": customer}))

    client.customers.update("cus_1", {"legalName": "Acme Limited"})
    client.customers.update("cus_1", {"legal_name": "Acme Limited"})
    client.customers.update("cus_1", {})

    assert [taken.json for taken in service.taken[1:]] == [{"legalName": "Acme Limited"}] * 2 + [{}]


# --- the client as an object ----------------------------------------------------------------------


def test_threads_share_one_client(service, client):
    service.always("POST /credits/deduct", answered(200, {}))

    together(20, lambda number: client.credits.deduct(f"cus_{number}", number))

    sent = sorted(taken.json["creditAmount"] for taken in service.taken if "deduct" in taken.line)
    assert sent == list(range(20))


def test_credentials_are_checked_before_they_are_used():
    for value in ("", "with space", "line\nbreak", "é", "\x00"):
        for arguments in ((value, REFRESH_TOKEN), (CLIENT_ID, value)):
            with pytest.raises(
                ConfigError, match="must be printable ASCII without spaces, and not empty"
            ) as caught:
                BillingClient("https://billing.example", *arguments)
            assert not value or value not in str(caught.value)


GIVEN = {
    "BILLHOOK_API_URL": "https://billing.example",
    "BILLHOOK_API_CLIENT_ID": CLIENT_ID,
    "BILLHOOK_API_REFRESH_TOKEN": REFRESH_TOKEN,
}


def by_file(path: Path) -> Settings:
    """Options with the token in a file."""
    given_ = {name: value for name, value in GIVEN.items() if not name.endswith("TOKEN")}
    return Settings.from_mapping({**given_, "BILLHOOK_API_REFRESH_TOKEN_FILE": str(path)})


def test_the_options_describe_a_client_and_secrets_may_be_given_as_secrets(service, tmp_path):
    path = tmp_path / "token"
    path.write_text(f"{REFRESH_TOKEN}\n")
    for settings in (Settings.from_mapping(GIVEN), by_file(path)):
        with BillingClient.from_settings(replace(settings, api_url=service.url)) as client:
            client.auth.login()
    with BillingClient(service.url, SecretStr(CLIENT_ID), SecretStr(REFRESH_TOKEN)) as client:
        client.auth.login()

    assert service.logins == 3


def test_an_unreadable_token_file_is_reported(tmp_path):
    with pytest.raises(ConfigError, match=r"TOKEN_FILE '.*none' cannot be read: No such file"):
        BillingClient.from_settings(by_file(tmp_path / "none"))


def test_an_empty_token_file_is_reported_by_its_own_option(tmp_path):
    path = tmp_path / "token"
    path.write_text("\n")
    path.chmod(0o600)

    told = r"^BILLHOOK_API_REFRESH_TOKEN_FILE '.*token': the token in it must be printable ASCII"
    with pytest.raises(ConfigError, match=told):
        BillingClient.from_settings(by_file(path))


def test_a_token_file_that_others_may_write_is_refused(tmp_path):
    path = tmp_path / "token"
    path.touch(0o660)
    path.chmod(0o660)

    told = f"BILLHOOK_API_REFRESH_TOKEN_FILE {path}: others may write it; run: chmod 600 {path}"
    with pytest.raises(ConfigError, match=told):
        BillingClient.from_settings(by_file(path))


def test_the_token_is_given_once():
    with pytest.raises(ConfigError, match=r"set BILLHOOK_API_REFRESH_TOKEN or .*_FILE, not both"):
        Settings.from_mapping({**GIVEN, "BILLHOOK_API_REFRESH_TOKEN_FILE": "token"})


# --- importing ------------------------------------------------------------------------------------


def python(program: str) -> str:
    ran = run_command([sys.executable, "-c", program], check=True)
    return ran.stdout.strip()


@pytest.mark.slow
def test_without_its_extra_the_client_names_it():
    without = """
import sys
sys.modules["{missing}"] = None
try:
    import billhook.client
except Exception as error:
    print(type(error).__name__, error)
"""
    assert python(without.format(missing="httpx2")) == (
        f"MissingExtra billhook.client needs the extra client: {install_command('client')}"
    )
    assert python(without.format(missing="billhook.resources")).startswith("ModuleNotFoundError")
