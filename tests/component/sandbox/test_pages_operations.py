"""The form of every operation, and the API call beside it: all of a sandbox is used by forms."""

from __future__ import annotations

import json
import re
import shlex
from html import unescape
from typing import Any
from urllib.parse import urlsplit

from billhook.sandbox.sandbox import GROUPS
from support.sandbox import API_TOKEN, Running, running
from support.sandbox_pages import PagesBrowser, fields_of, form
from support.scenarios import customer, invoices

CUSTOMER = "POST /_sandbox/customers"
HOSTILE = "<script>alert(1)</script>\"' onfocus=alert(2) $(touch /tmp/x) `id` \u202e"


def command_of(page: str) -> str:
    """The API call that a page shows."""
    found = re.search(r'aria-label="API call">(.*?)</pre>', page, re.DOTALL)
    assert found
    return unescape(found[1])


def run_command(sandbox: Running, command: str) -> Any:
    """Send what the command would: it is split as a shell does."""
    words = shlex.split(command)
    assert words[:2] == ["curl", "-X"]
    headers = [words[n + 1] for n, word in enumerate(words) if word == "-H"]
    body = words[words.index("-d") + 1].encode() if "-d" in words else None
    assert headers[:2] == ["x-api-key: $BILLHOOK_API_CLIENT_ID", "Authorization: Bearer $ACCESS_TOKEN"]
    target = urlsplit(words[3])
    return sandbox.ok(words[2], target.path + (f"?{target.query}" if target.query else ""), body)


def test_every_operation_has_a_form_but_those_that_deal_with_secrets(sandbox: Running) -> None:
    browser = PagesBrowser.logged_in(sandbox)
    keys = {operation.key for group in GROUPS for operation in group.operations}
    found = {key: browser.get(form(key)) for key in keys}
    without = {key for key, page in found.items() if "There is no form for such an operation" in page.text}

    assert without == {"POST /login", "POST /_sandbox/tokens", "POST /_sandbox/secrets/rotate"}
    assert {found[key].status_code for key in keys - without} == {200}
    assert browser.get(form("POST /nothing")).status_code == 404


def test_what_was_typed_stays_when_an_entry_is_added_and_when_it_is_refused(sandbox: Running) -> None:
    browser = PagesBrowser.logged_in(sandbox)
    added = browser.fill(form(CUSTOMER), name="Typed", add="contacts")
    fields = fields_of(added.text)
    refused = browser.fill(form(CUSTOMER), name="Typed", currency="dollars")
    count = sandbox.ok("GET", "/_sandbox/customers")["total"]

    assert added.status_code == 200
    assert fields["name"] == "Typed"
    assert {"contacts.0.email", "contacts.1.email"} <= fields.keys()
    assert refused.status_code == 400
    assert fields_of(refused.text)["name"] == "Typed"
    assert 'role="alert">Refused: ' in refused.text
    assert count == 0


def test_values_of_an_address_change_the_example_of_that_form_alone(sandbox: Running) -> None:
    browser = PagesBrowser.logged_in(sandbox)
    addresses = form("POST /contracts", **{"products.0.pricing.price": "77"}), form("POST /contracts")
    prices = [fields_of(browser.get(address).text)["products.0.pricing.price"] for address in addresses]

    assert prices == ["77", "1"]


def test_a_query_shows_its_answer_and_is_run_as_get(sandbox: Running) -> None:
    customer(sandbox, name="Acme Ltd")
    browser = PagesBrowser.logged_in(sandbox)
    page = browser.fill(form("GET /_sandbox/customers"), limit="5")
    refused = browser.fill(form("GET /_sandbox/customers"), limit="many")

    assert (page.status_code, refused.status_code) == (200, 400)
    assert '>"Acme Ltd"<' in page.text
    assert "/_sandbox/customers?limit=5" in command_of(page.text)


def test_the_api_call_of_a_form_does_what_the_form_does(sandbox: Running) -> None:
    browser = PagesBrowser.logged_in(sandbox)
    shown = browser.fill(form(CUSTOMER), name="Acme & Söhne's", show="call")
    none = sandbox.ok("GET", "/_sandbox/customers")["total"]
    run_command(sandbox, command_of(shown.text))
    by_call = sandbox.ok("GET", "/_sandbox/customers")["customers"]
    browser.fill(form(CUSTOMER), name="Acme & Söhne's")
    both = sandbox.ok("GET", "/_sandbox/customers")["customers"]
    kept = [{name: one.get(name) for name in ("name", "currency", "contacts")} for one in both]

    assert none == 0
    assert len(by_call) == 1
    assert kept[0] == kept[1]


def test_a_hostile_text_in_an_api_call_is_one_word_of_the_shell(sandbox: Running) -> None:
    hostile = HOSTILE.strip()
    browser = PagesBrowser.logged_in(sandbox)
    shown = browser.fill(form(CUSTOMER), name=hostile, show="call")
    path = browser.fill(form("GET /_sandbox/customers/{customerId}"), customerId=f"a/{hostile}", show="call")
    words = shlex.split(command_of(shown.text).replace("\\u202e", "\u202e"))

    assert json.loads(words[-1])["name"] == hostile
    assert shlex.split(command_of(path.text))[3].count("/") == 5  # http, host, and the three of the address
    assert "<script" not in shown.text


def test_every_button_shows_its_api_call_and_none_holds_a_token() -> None:
    with running() as sandbox:
        browser = PagesBrowser.logged_in(sandbox)
        browser.act("/demo")
        browser.run("POST /_sandbox/clock", advance="40d")
        invoice = invoices(sandbox)[0]["id"]
        paths = ("/", f"/invoices/{invoice}", form(CUSTOMER))
        pages = {path: browser.get(path).text for path in paths}

    for path, page in pages.items():
        buttons = len(re.findall(r'action="/pages/call\?', page))
        assert page.count("$ACCESS_TOKEN") >= max(buttons - 1, 1), path  # the clock has two forms of one call
        assert API_TOKEN not in page
        assert sandbox.token not in page
        assert "Bearer ey" not in page
