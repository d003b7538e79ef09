"""The schemes that options describe: each is listed once, with the options that it takes."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from datetime import UTC, datetime

import pytest

from billhook import signing
from billhook.sandbox.webhooks.signing_secrets import Signer
from billhook.settings import OPTIONS, Settings
from billhook.signing import Scheme, SignatureTemplate, StandardWebhooks, TimestampedHMAC
from billhook.signing.schemes import SCHEMES
from support.pages import PAGES
from support.signing import OTHER_SECRET, SECRET
from support.signing_cases import CASES

NOW = datetime(2026, 1, 15, tzinfo=UTC)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_is_called_with_the_options_that_it_names(name):
    scheme = SCHEMES[name]

    assert scheme.name == name
    assert set(scheme.options) <= {each.name for each in fields(Settings)}
    assert set(scheme.options.values()) <= set(inspect.signature(scheme).parameters)


def test_each_scheme_is_exported_and_has_a_row_in_the_chapter_with_its_name_if_options_describe_it():
    exported = [getattr(signing, name) for name in signing.__all__]
    classes = [each for each in exported if issubclass(each, Scheme) and each is not Scheme]
    rows = re.findall(
        r"^\| (?:`([a-z-]+)`)? *\| `(\w+)\(", PAGES["src/billhook/signing/README.md"], re.MULTILINE
    )

    assert {*SCHEMES.values()} <= {*classes}, "billhook.signing.__all__ lacks a scheme"
    expected = {each.__name__: each.name if each.name in SCHEMES else "" for each in classes}
    assert {of: name for name, of in rows} == expected, "the table of src/billhook/signing/README.md"
    assert {type(case.scheme) for case in CASES} == {*classes}, "a case in tests/support/signing_cases.py"


def test_the_help_of_an_option_names_the_schemes_that_take_it():
    for option in OPTIONS:
        taking = [name for name, scheme in SCHEMES.items() if option.attribute in scheme.options]
        if taking and option.attribute != "signature_header":
            assert [name for name in SCHEMES if name in option.help] == taking


@pytest.mark.parametrize(
    "scheme",
    [
        StandardWebhooks(),
        TimestampedHMAC(),
        SignatureTemplate(
            content="{timestamp}.{body}", signature_entry="s", entry_separator=";", timestamp_header="X-Time"
        ),
    ],
    ids=lambda scheme: scheme.name,
)
def test_where_a_header_has_room_for_several_signatures_each_secret_verifies(scheme):
    signer = Signer(scheme, [SECRET, OTHER_SECRET])

    headers = signer.sign(b"{}", event_type="PingTest", now=NOW, message_id="m1")

    for secret in (SECRET, OTHER_SECRET):
        keys = scheme.load([secret])
        found = scheme.verify(headers, b"{}", keys, event_type="PingTest", now=NOW, tolerance_seconds=1)
        assert found.signed_at == NOW
