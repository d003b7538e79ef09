"""Words of the specification: type checkers know them, and words that come later are read as well."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from billhook.fields.types import BillingStatus, BillingStatusWord, CreditKind, CreditKindWord
from billhook.resources import CreditGrant, ErrorType, InvoiceQuery
from billhook.resources.base import ErrorTypeWord

WORDS = [(BillingStatus, BillingStatusWord), (CreditKind, CreditKindWord), (ErrorType, ErrorTypeWord)]


@pytest.mark.parametrize(("listed", "word"), WORDS)
def test_the_literal_and_the_schema_have_the_words_of_the_enumeration(
    listed: type[StrEnum], word: Any
) -> None:
    of_enumeration, literal = get_args(get_args(word)[0])

    assert of_enumeration is listed
    assert list(get_args(literal)) == [one.value for one in listed]
    assert TypeAdapter(word).json_schema() == {"type": "string", "enum": [one.value for one in listed]}


@pytest.mark.parametrize(("listed", "word"), WORDS)
def test_a_listed_word_becomes_its_member_and_any_other_text_stays(listed: type[StrEnum], word: Any) -> None:
    read = TypeAdapter(word).validate_python

    assert [read(one.value) for one in listed] == list(listed)
    assert all(isinstance(read(one), listed) for one in listed)
    assert read("Later") == "Later"
    for wrong in (1, None, True, ["Paid"]):
        with pytest.raises(ValidationError, match="valid string"):
            read(wrong)


def test_models_write_the_word_as_it_was_given() -> None:
    assert CreditGrant(balance_kind="Unit").to_json() == b'{"balanceKind":"Unit"}'
    assert CreditGrant(balance_kind=CreditKind.UNIT).to_json() == b'{"balanceKind":"Unit"}'
    assert InvoiceQuery(billing_status="Overdue").to_query() == {"billingStatus": "Overdue"}
