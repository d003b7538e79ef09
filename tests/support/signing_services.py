"""What some services send, and their schemes on the signatures' page and in the recipes for senders.

Published: GitHub, Slack ("Verifying requests from Slack"), Orb (its SDKs' test data), Bridge ("Webhook event
signature verification"). Stripe and PyJWT are asked themselves. Metronome, Shopify, Lago, Paddle and Square
publish no vector, and their rule is computed here by hashlib. That Metronome's date is an HTTP date is an
assumption.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import cache
from pathlib import Path

import jwt
from stripe import WebhookSignature

from billhook.signing import Scheme
from support.sender_recipes import SOURCES
from support.signing_cases import TEXT_SECRET, rsa_pems

PAGE = Path(__file__).parents[2] / "src" / "billhook" / "signing" / "README.md"
BODY = b'{"id": "evt_1", "amount": "12.50"}'
AT = datetime(2026, 1, 15, 9, 30, 5, tzinfo=UTC)

SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
ORB_BODY = (
    b'{"id": "o4mmewpfNNTnjfZc", "created_at": "2024-03-27T15:42:29+00:00", "type": "resource_event.test", '
    b'"properties": {"message": "A test webhook from Orb. Happy testing!"}}'
)
BRIDGE_KEY = """-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAtqsEE4eI7EmzhcquGJXt
LX9PMK0UH6Kl1WIR21sv8HtueG8BuvvpP3MiN7ltzmIhS8KaynCjN4l+620PnXeu
xWG+CSnEdkinL9hCqbEid5vv9zl0j9LWiJx3FkKHqADU7cgm46aa8dKUdIQYF2X+
O7WmyLkC4wUM/mWhBPMsIQBznashRMZxx7XJjsVp27ACUE4eNIjEXbVYN6U8jSbU
hG++CfL8xXu+GHDqKmFE6Po6HnuURvLFVnCtE3mXXBcVFlPy+octfx8nOMLT3X8O
9UehIigJ34o2yMm/Fq3HUJzg2BsiAiGgtr0vmeoV9Q7upSNj9TuOumAzZFi4pYA+
qwIDAQAB
-----END PUBLIC KEY-----
"""
BRIDGE_SIGNATURE = (
    "jz/0dmHJ63FAzacGutrDTEoq+iSz/PHm/ugdooXDQu5NwuVIT2LmZGjsnCsBHgR9Py6OBP9zurzW4dHgygU4EDqmMPTUOvhvndYb"
    "4lWt+TY66LihaFI2whL6DAf/jb1QjYjNU0A6x9SLzC45dgE6X7zTDUM+2Z+scG/WEQf6SxQMt4E2sEipl5PqMK5lYUe3otdJV+X2"
    "c9D64bGwCEE7QSia+Vhozg8QNOQEk/rdz2IEONIg6oC43CeiN4E2kF9XLAGuy9uAHx9O9OJH5ZPLJZjyo4VcXYeWQgxaQ1gZ1Qu6"
    "hEEzgiPSff/1nou58dm4bIIazgCWli/mO0NyGcpfFw=="
)


@cache
def recipes() -> dict[str, Scheme]:
    """The scheme of each service, as a page has it."""
    (block,) = re.findall(r"<!-- recipes -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    defined: dict[str, object] = {}
    exec(block, defined)
    own = {name: value for name, value in defined.items() if isinstance(value, Scheme)}
    elsewhere = {name: source.scheme for name, source in SOURCES.items() if name in SENT}
    assert not own.keys() & elsewhere.keys(), "a scheme is on two pages"
    return own | elsewhere


def digest(content: bytes) -> bytes:
    return hmac.digest(TEXT_SECRET.encode(), content, hashlib.sha256)


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def sent() -> dict[str, tuple[dict[str, str], bytes, str, datetime]]:
    """What each service sends: headers, body, secret, time."""
    seconds, milliseconds = int(AT.timestamp()), int(AT.timestamp() * 1000)
    date = format_datetime(AT, usegmt=True)
    private, public = rsa_pems("lago")
    token = jwt.encode({"data": BODY.decode(), "iss": "https://api.getlago.com"}, private, "RS256")
    assert milliseconds == seconds * 1000
    return {
        "stripe": (
            {"Stripe-Signature": WebhookSignature.generate_signature_header(
                BODY.decode(), TEXT_SECRET, seconds)},
            BODY, TEXT_SECRET, AT,
        ),
        "github": (
            {"X-Hub-Signature-256":
             "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
            b"Hello, World!", "It's a Secret to Everybody", AT,
        ),
        "slack": (
            {"X-Slack-Request-Timestamp": "1531420618",
             "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"},
            SLACK_BODY, "8f742231b10e8888abcd99yyyzzz85a5", datetime.fromtimestamp(1531420618, UTC),
        ),
        "orb": (
            {"X-Orb-Timestamp": "2024-03-27T15:42:29.551",
             "X-Orb-Signature": "v1=9d25de966891ab0bc18754faf8d83d0980b44ae330fcc130b41a6cf3daf1f391"},
            ORB_BODY, "c-UGKYdnhHh436B_sMouYAPUvXyWpzOdunZBV5dFSD8",
            datetime(2024, 3, 27, 15, 42, 29, 551_000, tzinfo=UTC),
        ),
        "bridge": (
            {"X-Webhook-Signature": f"t=1705854411204,v0={BRIDGE_SIGNATURE}"},
            b'{"message":"Hello World!"}', BRIDGE_KEY,
            datetime.fromtimestamp(1705854411, UTC) + timedelta(milliseconds=204),
        ),
        "metronome": (
            {"X-Metronome-Date": date,
             "Metronome-Webhook-Signature": digest(date.encode() + b"\n" + BODY).hex()},
            BODY, TEXT_SECRET, AT,
        ),
        "paddle": (
            {"Paddle-Signature": f"ts={seconds};h1={digest(b'%d:%b' % (seconds, BODY)).hex()}"},
            BODY, TEXT_SECRET, AT,
        ),
        "square": (
            {"X-Square-HmacSha256-Signature":
             b64(digest(b"https://shop.example/webhooks/square" + BODY))},
            BODY, TEXT_SECRET, AT,
        ),
        "shopify": ({"X-Shopify-Hmac-Sha256": b64(digest(BODY))}, BODY, TEXT_SECRET, AT),
        "lago_hmac": ({"X-Lago-Signature": b64(digest(BODY))}, BODY, TEXT_SECRET, AT),
        "lago_jwt": ({"X-Lago-Signature": token}, BODY, public, AT),
    }  # fmt: skip


SENT = sent()
