"""Answers: every row of the spec's error table is an exception, and whatever else comes is told clearly."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from werkzeug import Response

from billhook import errors
from billhook.client import RetryPolicy
from billhook.client.operation import ApiOperation
from billhook.client.responses import ApiResponse, Redactor, ResponseParser
from billhook.client.transport import MAX_ANSWER_BYTES
from billhook.clock import FrozenClock
from billhook.errors import ApiError, ServiceError, UnexpectedResponse
from billhook.resources import Invoice, InvoiceResponse, sample
from support.billing_service import error

GET = ApiOperation("GET", "/invoices/{invoiceId}", InvoiceResponse)
INVOICE = {"invoice": json.loads(sample(Invoice).to_json())}
ONCE = RetryPolicy(attempts=1)

TABLE = [
    ("invalid_request_error", "invalid_date", 400, "InvalidRequest"),
    ("invalid_request_error", "resource_not_found", 404, "ResourceNotFound"),
    ("invalid_request_error", "request_too_large", 413, "RequestTooLarge"),
    ("authentication_error", "authentication_failed", 401, "AuthenticationFailed"),
    ("rate_limit_error", "rate_limit_exceeded", 429, "RateLimitExceeded"),
    ("api_error", "internal_error", 500, "InternalError"),
]
"""Source: spec, "Errors", row by row; for the statuses, POST /login and common sense."""


@pytest.fixture
def once(service, client_of):
    return client_of(service.url, retries=ONCE)


def test_each_row_of_the_table_is_an_exception_with_its_fields(service, once):
    for kind, code, status, name in TABLE:
        service.always("GET /invoices/1", error(status, kind, code, "so it is", param="a", params=[]))

        with pytest.raises(getattr(errors, name)) as caught:
            once.invoices.get("1")

        raised = caught.value
        assert type(raised).__name__ == name
        assert isinstance(raised, ServiceError)
        assert (raised.type, raised.code, raised.message) == (kind, code, "so it is")
        assert (raised.status, raised.param, raised.params) == (status, "a", [])
        assert raised.operation == "GET /invoices/{invoiceId}"
        told = f"GET /invoices/{{invoiceId}}: the service answered {status} {code}: so it is (a)"
        assert str(raised) == told


def test_several_failing_parameters_are_all_named(service, once):
    params = [{"param": "name", "message": "is required"}, {"param": "startDate", "message": "is no date"}]
    service.answer("GET /invoices/1", error(400, "invalid_request_error", "invalid", params=params))

    told = r"\(name: is required; startDate: is no date\)$"
    with pytest.raises(errors.InvalidRequest, match=told) as caught:
        once.invoices.get("1")

    assert caught.value.params == params


def test_the_type_decides_and_not_the_status(service, once):
    for status in (400, 422, 451, 599):
        service.answer("GET /invoices/1", error(status, "rate_limit_error", "rate_limit_exceeded"))

        with pytest.raises(errors.RateLimitExceeded, match=f"answered {status}"):
            once.invoices.get("1")


def page(status: int, content: str | bytes, content_type: str = "text/html", **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(content, status, named, content_type=content_type)


UNEXPECTED = {
    "a page": (page(200, "<h1>It works</h1>"), "its content type is not application/json"),
    "a page of an error": (page(502, "<h1>Bad Gateway</h1>"), "its content type is not application/json"),
    "half a JSON text": (page(200, '{"invoice": {"id"', "application/json"), "the body is not JSON"),
    "JSON as text": (page(200, "{}", "text/plain"), "its content type is not application/json"),
    "JSON as a picture": (page(200, "{}", "image/x+json"), "its content type is not application/json"),
    "no content type": (page(200, "{}", ""), "it is not JSON"),
    "a list": (page(200, "[]", "application/json"), "the body is JSON, but not an object"),
    "another shape": (page(200, '{"invoice": {"id": 7}}', "application/json"), "invoice.id: Input should"),
    "an error of no shape": (page(400, '{"error": 1}', "application/json"), "is not a valid ErrorBody"),
    "an error of a new type": (error(403, "permission_error", "forbidden"), "of a type that is not listed"),
    "a redirect": (page(302, "", Location="http://127.0.0.1:1/elsewhere"), "it leads to another address"),
    "broken gzip": (
        page(200, b"this is not gzip", "application/json", Content_Encoding="gzip"),
        "it cannot be decompressed",
    ),
}  # fmt: skip


def test_any_other_response_raises_unexpected_response_with_its_status(service, once):
    for name, (answer, problem) in UNEXPECTED.items():
        service.answer("GET /invoices/1", answer)

        with pytest.raises(UnexpectedResponse) as caught:
            once.invoices.get("1")

        assert problem in str(caught.value), name
        assert caught.value.status == answer.status_code, name
        assert f"of status {answer.status_code}" in str(caught.value)
        assert caught.value.operation == "GET /invoices/{invoiceId}"


def test_the_excerpt_is_short_and_safe(service, once):
    service.answer("GET /invoices/1", page(200, "<b>\x1b[31mhello\u202e</b>\n\n" + "x" * 10_000))

    with pytest.raises(UnexpectedResponse) as caught:
        once.invoices.get("1")

    assert caught.value.excerpt.startswith("<b> [31mhello </b> xxx")
    assert caught.value.excerpt.endswith("x…")
    assert len(caught.value.excerpt) == 200
    assert str(caught.value).isprintable()


def test_an_answer_that_does_not_end_is_not_read_to_its_end(service, once):
    zeros = gzip.compress(b"0" * (MAX_ANSWER_BYTES + 1))
    service.answer("GET /invoices/1", page(200, zeros, "application/json", Content_Encoding="gzip"))

    with pytest.raises(UnexpectedResponse, match="it is over 33554432 bytes"):
        once.invoices.get("1")


def test_json_is_read_by_any_of_its_names_compressed_with_new_fields_and_exact_amounts(service, once):
    text = json.dumps({"invoice": {**INVOICE["invoice"], "novelty": [1]}})
    text = text.replace("1249.9", "1249.90000000000000000001")
    kinds = ("application/json; charset=utf-8", "application/problem+json", "APPLICATION/JSON")
    zipped = page(200, gzip.compress(text.encode()), "application/json", Content_Encoding="gzip")

    for answer in (zipped, *(page(200, text, kind) for kind in kinds)):
        service.answer("GET /invoices/1", answer)
        invoice = once.invoices.get("1")
        assert (str(invoice.amount), invoice.model_extra) == ("1249.90000000000000000001", {"novelty": [1]})


# --- answers that the specification does not show -------------------------------------------------


def test_an_unspecified_response_is_returned_unchanged_if_it_is_a_json_object(service, once):
    for content, kind in (("", ""), ("", "application/json"), ('{"id": "sub_1"}', "application/json")):
        service.answer("POST /credits/deduct", page(200, content, kind))

        assert once.credits.deduct("cus_1", 5) == json.loads(content or "{}")
    for content, kind in (("<h1>", "text/html"), ("[]", "application/json"), ("{", "application/json")):
        service.answer("POST /credits/deduct", page(200, content, kind))

        with pytest.raises(UnexpectedResponse):
            once.credits.deduct("cus_1", 5)


# --- anything at all ------------------------------------------------------------------------------

KEYS = st.text() | st.sampled_from(["type", "code", "message", "param", "params", "invoice"])
ANSWERS = st.builds(
    ApiResponse,
    status=st.integers(100, 599),
    content_type=st.sampled_from(["application/json", "text/html", ""]) | st.text(),
    retry_after=st.none() | st.text() | st.integers().map(str),
    body=st.binary()
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    ).map(lambda value: json.dumps(value).encode()),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(ANSWERS)
def test_any_response_gives_a_model_or_an_api_error(answer):
    parser = ResponseParser(Redactor(), FrozenClock(datetime(2026, 1, 15, tzinfo=UTC)))
    told = ""
    try:
        found = parser.error(GET, answer)
        if found is None:
            parser.json(GET, answer)
            parser.resource(GET, answer)
        else:
            raise found
    except ApiError as raised:
        told = str(raised)

    assert told.startswith("GET /invoices/{invoiceId}: ")
    assert told.isprintable()
