"""Tables of what a sloppy reader would take: one spelling per value.

Each hostile text goes to the parser that reads it; that every scheme asks its parsers is shown by one text
for each. The times are in test_times.py.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable

import pytest

from billhook.errors import SignatureMalformed, SignatureMismatch
from billhook.signing import SignatureTemplate, StandardWebhooks
from billhook.signing.content_template import ContentTemplate
from billhook.signing.parsing import read_header, read_identifier, read_signature
from support.signing_cases import CASE_OF, CASES, NOW, TEXT_SECRET, TIMESTAMP, WHSEC, Delivery

STANDARD = CASE_OF["standard-webhooks-v1"]
TIMED_HMAC = CASE_OF["timestamped-hmac"]
TIMED_RSA = CASE_OF["timestamped-rsa"]
BODY_HMAC = CASE_OF["body-hmac"]
TEMPLATE = CASE_OF["template"]
ALL_FIELDS = CASE_OF["template-all-fields-ed25519"]

NOT_IDS = [
    "", "x" * 257, "msg.1", "msg_1,msg_1", "msg_1\n", "msg_1\0", "msg_1\x7f", "msg\t1", "msg_\u00e9",
    "msg_\udcff", "m" * 1_000_000,
]  # fmt: skip

RAW = bytes(range(32))
B64 = base64.b64encode(RAW).decode()  # ends in "8=": "9=" would decode to the same bytes

NOT_BASE64 = [
    "", B64.rstrip("="), B64 + "=", f"{B64[:10]} {B64[10:]}"[:44], B64 + "\n", "-_" + B64[2:], "!" + B64[1:],
    B64[:-2] + "9=", base64.b64encode(RAW[:31]).decode(), base64.b64encode(RAW + b"x").decode(), RAW.hex(),
    "\u00e9" + B64[1:], "\ud800" + B64[1:], "A" * 1_000_000,
]  # fmt: skip

HEX = RAW.hex()
NOT_HEX = [
    "", HEX[:-1], HEX + "0", HEX[:-2], HEX + "00", "g" + HEX[1:], HEX[:2] + "  " + HEX[4:], "0x" + HEX[2:],
    HEX + "\n", "\uff10" + HEX[1:], B64, "\udfff" + HEX[1:], "0" * 1_000_000,
]  # fmt: skip


def changed(case, **headers: str) -> Delivery:
    delivery = case.sign()
    return delivery._replace(
        headers=delivery.headers | {name.replace("_", "-"): value for name, value in headers.items()}
    )


def refuse(case, delivery: Delivery, match: str = ".") -> None:
    with pytest.raises(SignatureMalformed, match=match) as refused:
        case.verify(delivery, tolerance_seconds=10**12)
    assert refused.value.cause == "malformed"


def taken(read: Callable[[str], object], texts: Iterable[str]) -> list[str]:
    """Return which texts a parser takes. Of the others it says that they are malformed, and nothing else."""
    found = []
    for text in texts:
        try:
            read(text)
        except SignatureMalformed:
            continue
        found.append(text[:100])
    return found


# --- headers --------------------------------------------------------------------------------------


def test_a_header_is_ascii_text_of_at_most_8192_bytes():
    assert read_header({"X-A": "x" * 8192}, "X-A") == "x" * 8192
    with pytest.raises(SignatureMalformed, match="X-A is longer than 8192 bytes"):
        read_header({"X-A": "x" * 8193}, "X-A")
    for value in (b"v1", 5, ["v1"], "\u00e9", "\ud800"):
        with pytest.raises(SignatureMalformed, match="X-A is not ASCII text"):
            read_header({"X-A": value}, "X-A")


def test_each_header_of_each_scheme_is_read_strictly():
    for case in CASES:
        delivery = case.sign()
        for name in case.scheme.headers:
            for value, told in ((5, "is not ASCII text"), ("x" * 8193, "is longer than 8192 bytes")):
                refuse(case, delivery._replace(headers=delivery.headers | {name: value}), f"{name} {told}")


# --- times and ids --------------------------------------------------------------------------------


def test_every_scheme_refuses_a_time_in_another_spelling():
    signature = TIMED_HMAC.sign().headers["X-Webhook-Signature"].partition(",")[2]
    for value in ("", f"+{TIMESTAMP}", f"0{TIMESTAMP}", f"{TIMESTAMP} ", "253402300800"):
        refuse(STANDARD, changed(STANDARD, webhook_timestamp=value), "webhook-timestamp holds")
        refuse(TIMED_RSA, changed(TIMED_RSA, X_Webhook_Timestamp=value), "X-Webhook-Timestamp holds")
        joined = changed(TIMED_HMAC, X_Webhook_Signature=f"t={value},{signature}")
        refuse(TIMED_HMAC, joined, "X-Webhook-Signature holds")


def test_an_id_that_is_no_short_printable_text_is_malformed():
    assert taken(lambda text: read_identifier(text, "X-Id"), NOT_IDS) == []

    refuse(STANDARD, changed(STANDARD, webhook_id="msg.1"), "webhook-id is not an id of 1 to 256")
    refuse(ALL_FIELDS, changed(ALL_FIELDS, X_Webhook_Id="msg.1"), "X-Webhook-Id is not an id of 1 to 256")


def test_an_id_of_1_to_256_printable_characters_is_good_and_no_other_is_signed():
    def signed(message_id: str) -> dict[str, str]:
        return StandardWebhooks().sign(b"{}", WHSEC, event_type="PingTest", now=NOW, message_id=message_id)

    for value in ("x", "x" * 256, "evt:2021/02 {~}", "!"):
        assert STANDARD.verify(Delivery(signed(value), b"{}")).key == value
    for value in ("", "a.b", "a,b", "x" * 257, "\u00e9", "a\n"):
        with pytest.raises(ValueError, match="message_id must be 1 to 256 printable ASCII characters"):
            signed(value)


# --- signatures -----------------------------------------------------------------------------------


def test_a_signature_has_one_spelling_in_base64():
    assert read_signature(B64, "base64", 32, "X-Sig") == RAW
    assert taken(lambda text: read_signature(text, "base64", 32, "X-Sig"), NOT_BASE64) == []

    refuse(STANDARD, changed(STANDARD, webhook_signature=f"v1,{B64.rstrip('=')}"), "webhook-signature holds")
    refuse(TIMED_RSA, changed(TIMED_RSA, X_Webhook_Signature="AAB="), "X-Webhook-Signature holds")


def test_a_signature_whose_length_the_key_decides_is_canonical_base64_too():
    texts = ["", "=", "!", "AAA", "AAAA AAAA", "AAB=", "AAAA,AAAA"]

    assert read_signature("AAAA", "base64", None, "X-Sig") == bytes(3)
    assert taken(lambda text: read_signature(text, "base64", None, "X-Sig"), texts) == []
    for text, told in (("!AAA", "that is not base64"), ("AAB=", "not in canonical base64")):
        with pytest.raises(SignatureMalformed, match=told):
            read_signature(text, "base64", None, "X-Sig")


def test_a_signature_in_hexadecimal_has_64_digits_of_either_case():
    assert read_signature(HEX, "hex", 32, "X-Sig") == read_signature(HEX.upper(), "hex", 32, "X-Sig") == RAW
    assert taken(lambda text: read_signature(text, "hex", 32, "X-Sig"), NOT_HEX) == []

    for value in (HEX[:-2], HEX + "00", "g" + HEX[1:]):
        refuse(TEMPLATE, changed(TEMPLATE, X_Webhook_Signature=value), "X-Webhook-Signature holds")
        refuse(TIMED_HMAC, changed(TIMED_HMAC, X_Webhook_Signature=f"t={TIMESTAMP},v1={value}"), "-Signature")
        refuse(BODY_HMAC, changed(BODY_HMAC, X_Hub_Signature_256=f"sha256={value}"), "X-Hub-Signature-256")


def test_a_v1a_signature_is_64_bytes():
    for length in (0, 32, 63, 65):
        value = base64.b64encode(b"x" * length).decode()
        refuse(STANDARD, changed(STANDARD, webhook_signature=f"v1a,{value}"), "of the wrong length")


def test_an_rsa_signature_of_another_length_is_a_mismatch():
    for length in (1, 255, 257, 6_000):
        value = base64.b64encode(b"x" * length).decode()
        with pytest.raises(SignatureMismatch, match="no signature in the request matches"):
            TIMED_RSA.verify(changed(TIMED_RSA, X_Webhook_Signature=value))


def test_a_body_signature_needs_its_exact_prefix():
    for value in ("", "sha256", "SHA256=" + HEX, " sha256=" + HEX, HEX, "sha1=" + HEX):
        refuse(BODY_HMAC, changed(BODY_HMAC, X_Hub_Signature_256=value), "does not begin with 'sha256='")


# --- lists of signatures --------------------------------------------------------------------------


NO_VERSIONS = [
    "", " ", ",", "v1", f"v1,{B64} ", f" v1,{B64}", f"v1,{B64}  v1,{B64}", f"v1,{B64},v1,{B64}", "\0",
    f"v1={B64}", f"v1,{B64}\tv1,{B64}", "v2,x " * 16 + "v2,x", ",x", "\ud800", "v2," + "x" * 8190,
]  # fmt: skip
NO_ENTRIES = [
    "", ",", "=", "t", f"v1={HEX}", f"t={TIMESTAMP},t={TIMESTAMP},v1={HEX}", f"t={TIMESTAMP},v1={HEX},",
    f"t={TIMESTAMP}, v1", f"=1,t={TIMESTAMP}", f" t={TIMESTAMP},v1={HEX}", f"t=={TIMESTAMP}", "\ud800",
    f"t={TIMESTAMP},v1={HEX},t={TIMESTAMP + 1},v1={HEX}", f"t={TIMESTAMP}, t={TIMESTAMP}, v1={HEX}",
    "\0", "t=,v1=", "," * 8000,
]  # fmt: skip


def test_a_header_that_is_no_list_of_signatures_is_malformed():
    """No list of versions, or of entries with exactly one time."""
    for value in NO_VERSIONS:
        refuse(STANDARD, changed(STANDARD, webhook_signature=value), match="webhook-signature")
    for value in NO_ENTRIES:
        refuse(TIMED_HMAC, changed(TIMED_HMAC, X_Webhook_Signature=value), match="X-Webhook-Signature")


def test_blanks_behind_the_separators_of_a_list_are_read():
    good = TIMED_HMAC.sign().headers["X-Webhook-Signature"]
    time, signature = good.split(",")

    for value in (f"{time}, {signature}", f"{time},\t {signature}", f"v0=x, {time}, v1={HEX}, {signature}"):
        TIMED_HMAC.verify(changed(TIMED_HMAC, X_Webhook_Signature=value), tolerance_seconds=10**12)


def test_a_malformed_entry_spoils_the_list_though_another_is_good():
    good = STANDARD.sign().headers["webhook-signature"]

    refuse(STANDARD, changed(STANDARD, webhook_signature=f"{good} v1,AAAA"), match="of the wrong length")


def test_more_than_sixteen_signatures_are_not_read():
    good = STANDARD.sign().headers["webhook-signature"]
    timed = TIMED_HMAC.sign().headers["X-Webhook-Signature"]

    refuse(STANDARD, changed(STANDARD, webhook_signature=" ".join([good] * 17)), "more than 16 entries")
    assert TIMED_HMAC.verify(changed(TIMED_HMAC, X_Webhook_Signature=timed + ",v0=1" * 15))
    refuse(TIMED_HMAC, changed(TIMED_HMAC, X_Webhook_Signature=timed + ",v0=1" * 16), "more than 17 entries")


def test_at_most_four_public_key_signatures_are_accepted():
    for label, header in (
        ("standard-webhooks-v1a", "webhook-signature"),
        ("template-milliseconds-rsa-digest", "X-Webhook-Signature"),
    ):
        case = CASE_OF[label]
        delivery = case.sign()
        time, semicolon, signature = delivery.headers[header].rpartition(";")
        four, five = (f"{time}{semicolon}" + (semicolon or " ").join([signature] * n) for n in (4, 5))

        assert case.verify(delivery._replace(headers=delivery.headers | {header: four})).signed_at == NOW
        refuse(
            case,
            delivery._replace(headers=delivery.headers | {header: five}),
            "has more than 4 signatures of one kind",
        )


# --- the signed content ---------------------------------------------------------------------------


def test_a_type_that_could_be_misread_is_neither_verified_nor_signed():
    for event_type in ("", "Invoice.Approved", "\u00e9", "a\nb", "\ud800", "x" * 257):
        refuse(TEMPLATE, TEMPLATE.sign()._replace(event_type=event_type), "could be misread")
        with pytest.raises(ValueError, match="could be misread"):
            SignatureTemplate().sign(b"{}", TEXT_SECRET, event_type=event_type, now=NOW)


@pytest.mark.parametrize(
    ("template", "field", "bad", "good"),
    [
        ("{type}.:{body}", "type", ["a.b", ".", "a."], ["a", "a:b", ":"]),
        ("a{type}ab{id}:{body}", "type", ["a", "ba"], ["b", ":", "x" * 256]),
        ("a{type}ab{id}:{body}", "id", ["a:b", ":"], ["a", "ab", "b"]),
        ("{body}:{id}ba{type}a", "id", ["a:b", ":"], ["a", "ba", "b"]),
        ("{body}:{id}ba{type}a", "type", ["a", "ba"], ["b", ":", "."]),
        ("{id}~{body}", "id", ["", "x" * 257, "\x7f", "\u00e9", "a\nb"], ["x" * 256, " ", "{}"]),
    ],
)
def test_a_field_may_not_hold_the_character_that_ends_it(template, field, bad, good):
    """Take the first character of the literal after it; behind the body, the last of the one before it."""
    texts = {"id": "x", "type": "x"}

    rendered = {
        value: ContentTemplate(template).render(texts | {field: value}, b"{}") for value in (*bad, *good)
    }

    assert [value for value, content in rendered.items() if content is None] == bad
