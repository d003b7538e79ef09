"""Properties over arbitrary input, each with a control that shows it can fail."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billhook.errors import SignatureError
from billhook.signing.content_template import ContentTemplate
from support.signing_cases import CASES, LABELS, NOW, Case, Delivery

every_case = pytest.mark.parametrize("case", CASES, ids=LABELS)
every_part = pytest.mark.parametrize(
    ("case", "part"),
    [(case, part) for case in CASES for part in case.parts],
    ids=[f"{case.label}: {part}" for case in CASES for part in case.parts],
)
FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SOME = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])

bodies = st.binary(max_size=200) | st.dictionaries(st.text(), st.text()).map(
    lambda value: json.dumps(value).encode()
)
any_text = st.text(st.characters(exclude_categories=()), max_size=60)
tokens = st.lists(
    st.sampled_from(
        [
            "t=",
            "v1=",
            "v1,",
            "v1a,",
            "sha256=",
            ",",
            " ",
            "=",
            ".",
            "\0",
            "\ud800",
            "\u0665",
            "+5",
            "-1",
            "1e3",
            str(int(NOW.timestamp())),
            "9" * 13,
            "00",
            "ab" * 32,
            "A" * 43 + "=",
            "A" * 86 + "==",
            "x" * 9000,
        ]
    ),
    max_size=8,
).map("".join)


@every_case
@SOME
@given(data=st.data(), body=bodies, event_type=any_text)
def test_arbitrary_headers_and_bodies_raise_nothing_but_signature_errors(case, data, body, event_type):
    good = cached(case).headers
    headers = {name: data.draw(any_text | tokens | st.just(good[name]), name) for name in case.scheme.headers}

    try:
        case.verify(Delivery(headers, body, event_type), tolerance_seconds=10**12)
    except SignatureError:
        return
    assert headers == good  # the only way in
    assert body == b"{}"


@every_case
@FEW
@given(body=bodies)
def test_any_signed_body_verifies(case, body):
    delivery = case.sign(body)

    assert case.verify(delivery).signed_at == (NOW if case.timed else None)


def refuses_one_flipped_bit(case: Case, part: str, delivery: Delivery, bit: int, verify) -> None:
    """The property: with one bit of one part turned, the verifier refuses, however wide the tolerance."""
    get, put = case.parts[part]
    raw = bytearray(get(delivery))
    bit %= len(raw) * 8
    raw[bit // 8] ^= 1 << bit % 8
    changed = put(delivery, bytes(raw))
    assert changed != delivery
    try:
        verify(changed)
    except SignatureError:
        return
    raise AssertionError(f"a {part} with bit {bit} turned was accepted")


@every_part
@FEW
@given(bit=st.integers(0, 10_000), body=st.sampled_from([b"{}", b'{"amount": "10.00"}', bytes(range(256))]))
def test_a_single_flipped_bit_is_refused(case, part, bit, body):
    delivery = cached(case, body)

    refuses_one_flipped_bit(
        case, part, delivery, bit, lambda changed: case.verify(changed, tolerance_seconds=10**12)
    )


@every_part
def test_a_verifier_that_ignores_a_part_is_caught_by_that_property(case, part):
    delivery = cached(case)
    get, put = case.parts[part]

    def sloppy(changed: Delivery):
        return case.verify(put(changed, get(delivery)))

    for bit in (0, 5, 9):
        with pytest.raises(AssertionError, match=f"a {part} with bit {bit} turned was accepted"):
            refuses_one_flipped_bit(case, part, delivery, bit, sloppy)


def test_a_verifier_that_compares_half_a_signature_is_caught_by_that_property():
    case = CASES[0]
    delivery = cached(case)
    get, put = case.parts["signature"]

    def sloppy(changed: Delivery):
        return case.verify(put(changed, get(changed)[:16] + get(delivery)[16:]))

    refuses_one_flipped_bit(case, "signature", delivery, 5, sloppy)
    with pytest.raises(AssertionError, match="a signature with bit 200 turned was accepted"):
        refuses_one_flipped_bit(case, "signature", delivery, 200, sloppy)


# --- a request that was changed never stands for another content ----------------------------------

SEPARATORS = [b":", b".", b"\n", b"|", b"~", b""]


@st.composite
def changes(draw, delivery: Delivery) -> Delivery:
    """A delivery with some of it edited, or moved over the border between a header and the body."""
    name = draw(st.sampled_from(sorted(delivery.headers)))
    text = delivery.headers[name]
    at, cut = draw(st.integers(0, len(text))), draw(st.integers(0, 3))
    piece = draw(st.text("0123456789abcfAZT=,;:.+- /|~\n", max_size=3))
    moved = draw(st.integers(1, 6))
    separator = draw(st.sampled_from(SEPARATORS))
    kind = draw(st.sampled_from(["header", "body", "type", "into the body", "out of it"]))
    if kind == "header":
        return delivery._replace(headers=delivery.headers | {name: text[:at] + piece + text[at + cut :]})
    if kind == "body":
        body = delivery.body
        return delivery._replace(body=body[:at] + piece.encode() + body[at + cut :])
    if kind == "type":
        return delivery._replace(event_type=delivery.event_type[:at] + piece)
    if kind == "into the body":
        body = text[-moved:].encode() + separator + delivery.body
        return delivery._replace(headers=delivery.headers | {name: text[:-moved]}, body=body)
    longer = text + separator.decode() + delivery.body[:moved].decode()
    return delivery._replace(headers=delivery.headers | {name: longer}, body=delivery.body[moved:])


def stands_for_nothing_else(case: Case, delivery: Delivery, changed: Delivery, verify) -> None:
    """The property: what is accepted after a change is the same delivery, with the same body and time."""
    try:
        verdict = verify(changed)
    except SignatureError:
        return
    assert (verdict, changed.body) == (case.verify(delivery), delivery.body), "another content was accepted"


@every_case
@SOME
@given(data=st.data(), body=st.sampled_from([b"{}", b'{"a": 1}', b"1:x", b".5Z:{}", b"\n0"]))
def test_a_changed_request_is_never_verified_as_other_content(case, data, body):
    delivery = cached(case, body)

    stands_for_nothing_else(
        case,
        delivery,
        data.draw(changes(delivery)),
        lambda changed: case.verify(changed, tolerance_seconds=10**12),
    )


@every_case
def test_a_verifier_that_takes_any_body_is_caught_by_that_property(case):
    delivery = cached(case)

    with pytest.raises(AssertionError, match="another content was accepted"):
        stands_for_nothing_else(
            case, delivery, delivery._replace(body=b"{ }"), lambda changed: case.verify(delivery)
        )


_deliveries: dict[tuple[str, bytes], Delivery] = {}


def cached(case: Case, body: bytes = b"{}") -> Delivery:
    """Signed once: RSA takes its time, and the bits to turn are in the result."""
    if (case.label, body) not in _deliveries:
        _deliveries[case.label, body] = case.sign(body)
    return _deliveries[case.label, body]


# --- no two messages have the same bytes ----------------------------------------------------------

TEMPLATES = [
    "{timestamp}.{type}.{body}",
    "{id}.{timestamp}.{body}",
    "a{type}ab{id}:{body}",
    "{body}:{id}ba{type}a",
    "{type}:{body}:{id}",
    "{id}aa{body}",
]
few_letters = st.text("ab:.1", min_size=1, max_size=4)
messages = st.fixed_dictionaries(
    {
        "id": few_letters,
        "type": few_letters,
        "timestamp": st.sampled_from(["1", "11"]),
        "body": st.text("ab:.1", max_size=4),
    }
)


def means_one_message_only(template: str, one: dict[str, str], other: dict[str, str], render) -> None:
    content = ContentTemplate(template)
    rendered = [render(content, message) for message in (one, other)]
    if None not in rendered and rendered[0] == rendered[1]:
        assert {field: one[field] for field in content.fields} == {
            field: other[field] for field in content.fields
        }, "two messages have the same bytes"


@pytest.mark.parametrize("template", TEMPLATES)
@settings(max_examples=200, deadline=None)
@given(one=messages, other=messages)
def test_two_messages_never_have_the_same_bytes(template, one, other):
    means_one_message_only(
        template, one, other, lambda content, message: content.render(message, message["body"].encode())
    )


def test_plain_formatting_is_caught_by_that_property():
    typed = {"id": "x", "timestamp": "1", "type": "a.b", "body": "x"}
    shifted = typed | {"type": "a", "body": "b.x"}

    with pytest.raises(AssertionError, match="two messages have the same bytes"):
        means_one_message_only(
            "{timestamp}.{type}.{body}",
            typed,
            shifted,
            lambda content, message: content.text.format(**message),
        )


def test_braces_in_a_body_stay_as_they_are():
    body = b"{timestamp}{0}{{}}\x00\xff"

    assert ContentTemplate("{timestamp}.{body}").render({"timestamp": "5"}, body) == b"5." + body
