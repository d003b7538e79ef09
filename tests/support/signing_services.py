"""What some services send, and their schemes on the signatures' page.

Published: Orb (its SDKs' test data), Bridge ("Webhook event signature verification"). Metronome, Lago and
Square publish no vector, and their rule is computed here by hashlib and PyJWT. That Metronome's date is an
HTTP date is an assumption. What senders' own packages sign is recorded: `support.sender_recipes`.
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

from billhook.signing import Scheme
from support.signing_cases import TEXT_SECRET, rsa_pems

PAGE = Path(__file__).parents[2] / "src" / "billhook" / "signing" / "README.md"
BODY = b'{"id": "evt_1", "amount": "12.50"}'
AT = datetime(2026, 1, 15, 9, 30, 5, tzinfo=UTC)

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
    """The scheme of each service, as the page has it."""
    (block,) = re.findall(r"<!-- recipes -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    defined: dict[str, object] = {}
    exec(block, defined)
    return {name: value for name, value in defined.items() if isinstance(value, Scheme)}


def digest(content: bytes) -> bytes:
    return hmac.digest(TEXT_SECRET.encode(), content, hashlib.sha256)


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def sent() -> dict[str, tuple[dict[str, str], bytes, str, datetime]]:
    """What each service sends: headers, body, secret, time."""
    date = format_datetime(AT, usegmt=True)
    private, public = rsa_pems("lago")
    token = jwt.encode({"data": BODY.decode(), "iss": "https://api.getlago.com"}, private, "RS256")
    return {
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
        "square": (
            {"X-Square-HmacSha256-Signature":
             b64(digest(b"https://shop.example/webhooks/square" + BODY))},
            BODY, TEXT_SECRET, AT,
        ),
        "lago_hmac": ({"X-Lago-Signature": b64(digest(BODY))}, BODY, TEXT_SECRET, AT),
        "lago_jwt": ({"X-Lago-Signature": token}, BODY, public, AT),
    }  # fmt: skip


SENT = sent()
