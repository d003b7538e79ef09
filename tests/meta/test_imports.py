"""What an import brings along, and what it must not: each asked of a process of its own."""

from __future__ import annotations

import sys

from support.processes import run_command


def test_importing_billhook_does_not_import_the_resources():
    told = "print('billhook.resources' in sys.modules)"
    code = f"import sys, billhook; {told}; import billhook.resources; {told}"

    ran = run_command([sys.executable, "-c", code], check=True)

    assert ran.stdout.split() == ["False", "True"]


def test_shared_secrets_never_import_cryptography():
    program = """
import sys
from datetime import UTC, datetime
from billhook.signing import *
now = datetime.now(UTC)
secret = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
for scheme in (StandardWebhooks(), TimestampedHMAC(), BodyHMAC("X-S", replay_protection="dedupe-only"),
               SignatureTemplate()):
    headers = scheme.sign(b"{}", secret, event_type="PingTest", now=now)
    scheme.verify(headers, b"{}", scheme.load([secret]), event_type="PingTest", now=now, tolerance_seconds=9)
TimestampedRSA()
print("before", "cryptography" in sys.modules)
StandardWebhooks().load(["whpk_" + "A" * 42 + "E="])
print("after", "cryptography" in sys.modules)
"""
    done = run_command([sys.executable, "-c", program], check=True)

    assert done.stdout.split() == ["before", "False", "after", "True"]
