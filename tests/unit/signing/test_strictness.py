"""Tables of what a sloppy reader would take: one spelling per value, in every scheme."""

from __future__ import annotations

import base64

import pytest

from billhook.errors import SignatureMalformed, SignatureMismatch, TimestampInFuture, TimestampTooOld
from billhook.signing import SignatureTemplate, StandardWebhooks
from billhook.signing.parsing import UNIX
from support.signing_cases import CASES, LABELS, NOW, TEXT_SECRET, TIMESTAMP, WHSEC, Delivery

STANDARD = CASES[LABELS.index("standard-webhooks-v1")]
TIMED_HMAC = CASES[LABELS.index("timestamped-hmac")]
TIMED_RSA = CASES[LABELS.index("timestamped-rsa")]
BODY_HMAC = CASES[LABELS.index("body-hmac")]
TEMPLATE = CASES[LABELS.index("template")]

NOT_TIMESTAMPS = {
    "empty": "",
    "plus": f"+{TIMESTAMP}",
    "minus": f"-{TIMESTAMP}",
    "space before": f" {TIMESTAMP}",
    "space behind": f"{TIMESTAMP} ",
    "newline": f"{TIMESTAMP}\n",
    "NUL": f"{TIMESTAMP}\0",
    "fraction": f"{TIMESTAMP}.0",
    "exponent": "1e3",
    "hexadecimal": "0x6037bd82",
    "underscore": "1_614_265_730",
    "leading zero": f"0{TIMESTAMP}",
    "two zeros": "00",
    "arabic-indic": "".join(chr(0x660 + int(digit)) for digit in str(TIMESTAMP)),
    "full-width": "".join(chr(0xFF10 + int(digit)) for digit in str(TIMESTAMP)),
    "superscript": "\u00b9\u00b2\u00b3",
    "13 digits": f"{TIMESTAMP}000",
    "after the year 9999": "253402300800",
    "5,000 digits": "9" * 5_000,
    "megabyte": "1" * 1_000_000,
    "lone surrogate": "\ud800",
    "nan": "nan",
    "infinity": "inf",
}

NOT_IDS = {
    "empty": "",
    "257 characters": "x" * 257,
    "dot": "msg.1",
    "comma": "msg_1,msg_1",
    "newline": "msg_1\n",
    "NUL": "msg_1\0",
    "delete": "msg_1\x7f",
    "tab": "msg\t1",
    "latin-1": "msg_\u00e9",
    "lone surrogate": "msg_\udcff",
    "megabyte": "m" * 1_000_000,
}

RAW = bytes(range(32))
B64 = base64.b64encode(RAW).decode()  # ends in "8=": "9=" would decode to the same bytes

NOT_BASE64 = {
    "empty": "",
    "no padding": B64.rstrip("="),
    "too much padding": B64 + "=",
    "space inside": f"{B64[:10]} {B64[10:]}"[:44],
    "newline behind": B64 + "\n",
    "url alphabet": "-_" + B64[2:],
    "foreign character": "!" + B64[1:],
    "bits behind the end": B64[:-2] + "9=",
    "31 bytes": base64.b64encode(RAW[:31]).decode(),
    "33 bytes": base64.b64encode(RAW + b"x").decode(),
    "hexadecimal": RAW.hex(),
    "latin-1": "\u00e9" + B64[1:],
    "lone surrogate": "\ud800" + B64[1:],
    "megabyte": "A" * 1_000_000,
}

HEX = RAW.hex()
NOT_HEX = {
    "empty": "",
    "63 digits": HEX[:-1],
    "65 digits": HEX + "0",
    "31 bytes": HEX[:-2],
    "33 bytes": HEX + "00",
    "not a digit": "g" + HEX[1:],
    "spaces between": HEX[:2] + "  " + HEX[4:],
    "prefix": "0x" + HEX[2:],
    "newline behind": HEX + "\n",
    "full-width": "\uff10" + HEX[1:],
    "base64": B64,
    "lone surrogate": "\udfff" + HEX[1:],
    "megabyte": "0" * 1_000_000,
}


def table(values: dict[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("value", values.values(), ids=values.keys())


def changed(case, **headers: str) -> Delivery:
    delivery = case.sign()
    return delivery._replace(
        headers=delivery.headers | {name.replace("_", "-"): value for name, value in headers.items()}
    )


def refuse(case, delivery: Delivery, match: str = ".") -> None:
    with pytest.raises(SignatureMalformed, match=match) as refused:
        case.verify(delivery, tolerance_seconds=10**12)
    assert refused.value.cause == "malformed"


@table(NOT_TIMESTAMPS)
def test_a_timestamp_that_is_no_plain_number_of_seconds_is_malformed(value):
    refuse(STANDARD, changed(STANDARD, webhook_timestamp=value), match="webhook-timestamp")
    refuse(TIMED_RSA, changed(TIMED_RSA, X_Webhook_Timestamp=value), match="X-Webhook-Timestamp")
    refuse(TEMPLATE, changed(TEMPLATE, X_Webhook_Timestamp=value), match="X-Webhook-Timestamp")
    signature = TIMED_HMAC.sign().headers["X-Webhook-Signature"].partition(",")[2]
    refuse(TIMED_HMAC, changed(TIMED_HMAC, X_Webhook_Signature=f"t={value},{signature}"))


@table(NOT_TIMESTAMPS)
def test_the_reader_of_timestamps_stands_alone(value):
    with pytest.raises(SignatureMalformed, match="X-Time holds"):
        UNIX.read(value, "X-Time")


def test_a_timestamp_of_one_digit_or_of_12_is_well_formed():
    for value in ("0", "5", "253402300799"):
        with pytest.raises(SignatureMismatch, match="no signature in the request matches"):
            STANDARD.verify(changed(STANDARD, webhook_timestamp=value))


@table(NOT_IDS)
def test_an_id_that_is_no_short_printable_text_is_malformed(value):
    refuse(STANDARD, changed(STANDARD, webhook_id=value), match="webhook-id")
    template = CASES[LABELS.index("template-all-fields-ed25519")]
    refuse(template, changed(template, X_Webhook_Id=value), match="X-Webhook-Id")


@pytest.mark.parametrize("value", ["x", "x" * 256, "evt:2021/02 {~}", "!"])
def test_an_id_of_1_to_256_printable_characters_is_good(value):
    headers = StandardWebhooks().sign(b"{}", WHSEC, event_type="PingTest", now=NOW, message_id=value)

    assert STANDARD.verify(Delivery(headers, b"{}")).key == value


@pytest.mark.parametrize("value", ["", "a.b", "a,b", "x" * 257, "\u00e9", "a\n"])
def test_an_id_that_no_receiver_takes_is_not_signed(value):
    with pytest.raises(ValueError, match="message_id must be 1 to 256 printable ASCII characters"):
        StandardWebhooks().sign(b"{}", WHSEC, event_type="PingTest", now=NOW, message_id=value)


@table(NOT_BASE64)
def test_a_v1_signature_that_is_no_canonical_base64_of_32_bytes_is_malformed(value):
    refuse(STANDARD, changed(STANDARD, webhook_signature=f"v1,{value}"), match="webhook-signature")


@pytest.mark.parametrize("length", [0, 32, 63, 65])
def test_a_v1a_signature_is_64_bytes(length):
    value = base64.b64encode(b"x" * length).decode()

    refuse(STANDARD, changed(STANDARD, webhook_signature=f"v1a,{value}"), match="of the wrong length")


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        ",",
        "v1",
        "v1," + B64 + " ",
        " v1," + B64,
        f"v1,{B64}  v1,{B64}",
        f"v1,{B64},v1,{B64}",
        "\0",
        "v1=" + B64,
        f"v1,{B64}\tv1,{B64}",
        "v2,x " * 16 + "v2,x",
        ",x",
        "\ud800",
        "v2," + "x" * 8190,
    ],
)
def test_a_signature_header_without_versions_is_malformed(value):
    refuse(STANDARD, changed(STANDARD, webhook_signature=value), match="webhook-signature")


def test_a_malformed_entry_spoils_the_list_though_another_is_good():
    good = STANDARD.sign().headers["webhook-signature"]

    refuse(STANDARD, changed(STANDARD, webhook_signature=f"{good} v1,AAAA"), match="of the wrong length")


def test_a_signature_header_of_8192_bytes_is_read_and_one_more_is_not():
    good = STANDARD.sign().headers["webhook-signature"]
    filler = "v2," + "x" * (8192 - len(good) - 4)

    assert STANDARD.verify(changed(STANDARD, webhook_signature=f"{good} {filler}")).key == "msg_1"
    refuse(STANDARD, changed(STANDARD, webhook_signature=f"{good} {filler}x"), "longer than 8192 bytes")


def test_sixteen_signatures_are_read_and_one_more_is_not():
    good = STANDARD.sign().headers["webhook-signature"]
    timed = TIMED_HMAC.sign().headers["X-Webhook-Signature"]

    assert STANDARD.verify(changed(STANDARD, webhook_signature=" ".join([good] * 16))).key == "msg_1"
    refuse(STANDARD, changed(STANDARD, webhook_signature=" ".join([good] * 17)), "more than 16 entries")
    assert TIMED_HMAC.verify(changed(TIMED_HMAC, X_Webhook_Signature=timed + ",v0=1" * 15))
    refuse(TIMED_HMAC, changed(TIMED_HMAC, X_Webhook_Signature=timed + ",v0=1" * 16), "more than 17 entries")


@pytest.mark.parametrize("count", [4, 5])
def test_at_most_four_public_key_signatures_are_accepted(count):
    for label, header in (
        ("standard-webhooks-v1a", "webhook-signature"),
        ("template-milliseconds-rsa-digest", "X-Webhook-Signature"),
    ):
        case = CASES[LABELS.index(label)]
        delivery = case.sign()
        time, semicolon, signature = delivery.headers[header].rpartition(";")
        joined = (semicolon or " ").join([signature] * count)
        many = delivery._replace(headers=delivery.headers | {header: f"{time}{semicolon}{joined}"})
        if count == 4:
            assert case.verify(many).signed_at == NOW
        else:
            refuse(case, many, "has more than 4 signatures of one kind")


@table(NOT_HEX)
def test_a_hex_signature_without_exactly_64_digits_is_malformed(value):
    name = "X-Webhook-Signature"
    refuse(TIMED_HMAC, changed(TIMED_HMAC, X_Webhook_Signature=f"t={TIMESTAMP},v1={value}"), match=name)
    refuse(TEMPLATE, changed(TEMPLATE, X_Webhook_Signature=value), match=name)
    refuse(BODY_HMAC, changed(BODY_HMAC, X_Hub_Signature_256=f"sha256={value}"), match="X-Hub-Signature-256")


def test_hexadecimal_digits_of_either_case_are_good():
    timed = TIMED_HMAC.sign().headers["X-Webhook-Signature"]
    label, digits = timed.split("v1=")
    body = BODY_HMAC.sign().headers["X-Hub-Signature-256"].removeprefix("sha256=")

    assert TIMED_HMAC.verify(changed(TIMED_HMAC, X_Webhook_Signature=f"{label}v1={digits.upper()}"))
    assert BODY_HMAC.verify(changed(BODY_HMAC, X_Hub_Signature_256=f"sha256={body.upper()}"))


@pytest.mark.parametrize(
    "value",
    [
        "",
        ",",
        "=",
        "t",
        "v1=" + HEX,
        f"t={TIMESTAMP},t={TIMESTAMP},v1={HEX}",
        f"t={TIMESTAMP},v1={HEX},",
        f"t={TIMESTAMP}, v1",
        f"=1,t={TIMESTAMP}",
        f" t={TIMESTAMP},v1={HEX}",
        f"t=={TIMESTAMP}",
        "\ud800",
        f"t={TIMESTAMP},v1={HEX},t={TIMESTAMP + 1},v1={HEX}",
        "\0",
        "t=,v1=",
        "," * 8000,
    ],
)
def test_a_header_without_exactly_one_time_and_signatures_is_malformed(value):
    refuse(TIMED_HMAC, changed(TIMED_HMAC, X_Webhook_Signature=value), match="X-Webhook-Signature")


@pytest.mark.parametrize("value", ["", "sha256", "SHA256=" + HEX, " sha256=" + HEX, HEX, "sha1=" + HEX])
def test_a_body_signature_needs_its_exact_prefix(value):
    refuse(BODY_HMAC, changed(BODY_HMAC, X_Hub_Signature_256=value), "does not begin with 'sha256='")


@pytest.mark.parametrize("value", ["", "=", "!", "AAA", "AAAA AAAA", "AAB=", "AAAA,AAAA", "A" * 8196])
def test_an_rsa_signature_is_canonical_base64(value):
    refuse(TIMED_RSA, changed(TIMED_RSA, X_Webhook_Signature=value), match="X-Webhook-Signature")


@pytest.mark.parametrize("length", [1, 255, 257, 6_000])
def test_an_rsa_signature_of_another_length_is_a_mismatch(length):
    value = base64.b64encode(b"x" * length).decode()

    with pytest.raises(SignatureMismatch, match="no signature in the request matches"):
        TIMED_RSA.verify(changed(TIMED_RSA, X_Webhook_Signature=value))


@pytest.mark.parametrize("value", [b"v1", 5, ["v1"]])
def test_a_header_that_is_not_text_is_malformed(value):
    for case in CASES:
        for name in case.scheme.headers:
            delivery = case.sign()
            refuse(case, delivery._replace(headers=delivery.headers | {name: value}), "is not ASCII text")


@pytest.mark.parametrize("event_type", ["", "Invoice.Approved", "\u00e9", "a\nb", "\ud800", "x" * 257])
def test_a_type_that_could_be_misread_is_neither_verified_nor_signed(event_type):
    refuse(TEMPLATE, TEMPLATE.sign()._replace(event_type=event_type), "could be misread")
    with pytest.raises(ValueError, match="could be misread"):
        SignatureTemplate().sign(b"{}", TEXT_SECRET, event_type=event_type, now=NOW)


def test_a_dotted_type_is_good_where_the_dot_separates_nothing():
    scheme = SignatureTemplate(content="{timestamp}|{type}|{body}")
    headers = scheme.sign(b"{}", TEXT_SECRET, event_type="Invoice.Approved", now=NOW)

    verdict = scheme.verify(
        headers,
        b"{}",
        scheme.load([TEXT_SECRET]),
        event_type="Invoice.Approved",
        now=NOW,
        tolerance_seconds=1,
    )

    assert verdict.signed_at == NOW


def test_the_other_errors_have_distinct_causes_for_the_log():
    assert [error.cause for error in (SignatureMismatch, TimestampTooOld, TimestampInFuture)] == [
        "mismatch",
        "stale",
        "future",
    ]
