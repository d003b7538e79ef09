"""Properties of every signature scheme, each with a control that shows it can fail."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billhook.errors import SignatureError
from billhook.signing import Verified
from billhook.signing.content_template import ContentTemplate
from support.signing_cases import CASE_OF, CASES, LABELS, NOW, Case, Delivery

every_case = pytest.mark.parametrize("case", CASES, ids=LABELS)

bodies = st.binary(max_size=200) | st.dictionaries(st.text(), st.text()).map(
    lambda value: json.dumps(value).encode()
)
any_text = st.text(st.characters(exclude_categories=()), max_size=60)
TOKENS = [
    "t=", "v1=", "v1,", "v1a,", "sha256=", ",", " ", "=", ".", "\0", "\ud800", "\u0665", "+5", "-1", "1e3",
    str(int(NOW.timestamp())), "9" * 13, "00", "ab" * 32, "A" * 43 + "=", "A" * 86 + "==", "x" * 9000,
]  # fmt: skip
tokens = st.lists(st.sampled_from(TOKENS), max_size=8).map("".join)


@every_case
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


@pytest.mark.parametrize("label", ["standard-webhooks-v1", "template-all-fields-ed25519", "body-jwt"])
@given(body=bodies)
def test_any_signed_body_verifies(label, body):
    case = CASE_OF[label]

    assert case.verify(case.sign(body)).signed_at == NOW


def accepted_bits(case: Case, part: str, verify: Callable[[Delivery], Verified]) -> list[int]:
    """Return the bits of one part of a delivery that can be turned without the verifier's notice."""
    delivery = cached(case)
    get, put = case.parts[part]
    original, found = get(delivery), []
    for bit in range(len(original) * 8):
        raw = bytearray(original)
        raw[bit // 8] ^= 1 << bit % 8
        changed = put(delivery, bytes(raw))
        assert changed != delivery
        try:
            verify(changed)
        except SignatureError:
            continue
        found.append(bit)
    return found


@every_case
def test_a_single_flipped_bit_is_refused_however_wide_the_tolerance(case):
    found = {
        part: accepted_bits(case, part, lambda changed: case.verify(changed, tolerance_seconds=10**12))
        for part in case.parts
    }

    assert [part for part, bits in found.items() if bits] == []


@every_case
def test_control_a_verifier_that_ignores_a_part_accepts_all_its_bits(case):
    def ignoring(part: str) -> Callable[[Delivery], Verified]:
        get, put = case.parts[part]
        return lambda changed: case.verify(put(changed, get(cached(case))))

    for part, (get, _) in case.parts.items():
        assert accepted_bits(case, part, ignoring(part)) == list(range(len(get(cached(case))) * 8))


def test_control_a_verifier_that_compares_half_a_signature_accepts_bits_of_the_rest():
    case = CASE_OF["standard-webhooks-v1"]
    get, put = case.parts["signature"]
    original = get(cached(case))

    found = accepted_bits(
        case, "signature", lambda changed: case.verify(put(changed, get(changed)[:16] + original[16:]))
    )

    assert found == list(range(128, 256))


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
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), body=st.sampled_from([b"{}", b'{"a": 1}', b"1:x", b".5Z:{}", b"\n0"]))
def test_a_changed_request_is_never_verified_as_other_content(case, data, body):
    delivery = cached(case, body)

    stands_for_nothing_else(
        case,
        delivery,
        data.draw(changes(delivery)),
        lambda changed: case.verify(changed, tolerance_seconds=10**12),
    )


def test_control_a_verifier_that_takes_any_body_is_caught_by_that_property():
    case = CASE_OF["template"]
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
WORDS = ["".join(letters) for length in (1, 2) for letters in itertools.product("ab:.", repeat=length)]
WORDS += ["a.1", "1.a"]
VALUES = {"id": WORDS, "type": WORDS, "timestamp": ["1", "11"], "body": ["", *WORDS]}


def two_of_the_same_bytes(template: str, render) -> list[tuple[str, ...]]:
    """Return the first two messages of short words that a template renders to the same bytes, if any."""
    content = ContentTemplate(template)
    fields = sorted(content.fields)
    seen: dict[bytes, tuple[str, ...]] = {}
    for values in itertools.product(*(VALUES[field] for field in fields)):
        rendered = render(content, dict(zip(fields, values, strict=True)))
        if rendered is not None and seen.setdefault(rendered, values) != values:
            return [seen[rendered], values]
    return []


@pytest.mark.parametrize("template", TEMPLATES)
def test_two_messages_never_have_the_same_bytes(template):
    found = two_of_the_same_bytes(
        template, lambda content, message: content.render(message, message["body"].encode())
    )

    assert found == []


def test_control_plain_formatting_gives_two_messages_the_same_bytes():
    for template in TEMPLATES:
        assert two_of_the_same_bytes(template, lambda content, message: content.text.format(**message))


def test_braces_in_a_body_stay_as_they_are():
    body = b"{timestamp}{0}{{}}\x00\xff"

    assert ContentTemplate("{timestamp}.{body}").render({"timestamp": "5"}, body) == b"5." + body
