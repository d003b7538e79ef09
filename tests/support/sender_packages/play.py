"""Has the PyPI packages of senders sign and verify requests: from stdin and to stdout, as JSON.

Runs in a virtual environment that has these packages and not billhook. See `support.sender_packages`.
"""

import json
import sys
from datetime import UTC, datetime
from importlib.metadata import version

import standardwebhooks.webhooks
from pypaystack2 import PaystackClient
from slack_sdk.signature import Clock, SignatureVerifier
from stripe import SignatureVerificationError, WebhookSignature
from svix.webhooks import Webhook as SvixWebhook


class Standard:
    """standardwebhooks, and svix, which calls it: they know the machine's time alone, which is moved here."""

    def __init__(self, request, package=standardwebhooks.webhooks.Webhook, prefix="webhook"):
        self.webhook, self.prefix = package(request["secret"]), prefix
        self.id, self.at = request["headers"][f"{prefix}-id"], request["at"]

    def sign(self, body):
        signature = self.webhook.sign(self.id, datetime.fromtimestamp(self.at, UTC), body)
        headers = {"id": self.id, "timestamp": str(self.at), "signature": signature}
        return {f"{self.prefix}-{name}": text for name, text in headers.items()}

    def verify(self, headers, body):
        at = self.at

        class Then(datetime):
            @classmethod
            def now(cls, tz=None):
                return cls.fromtimestamp(at, tz)

        standardwebhooks.webhooks.datetime = Then
        try:
            self.webhook.verify(body, headers)
        except standardwebhooks.webhooks.WebhookVerificationError:
            return False
        finally:
            standardwebhooks.webhooks.datetime = datetime
        return True


class Svix(Standard):
    def __init__(self, request):
        super().__init__(request, SvixWebhook, "svix")


class Stripe:
    def __init__(self, request):
        self.secret, self.at = request["secret"], request["at"]

    def sign(self, body):
        header = WebhookSignature.generate_signature_header(body, self.secret, self.at)
        return {"Stripe-Signature": header}

    def verify(self, headers, body):
        try:
            return WebhookSignature.verify_header(body, headers["Stripe-Signature"], self.secret)
        except SignatureVerificationError:
            return False


class Slack(Clock):
    def __init__(self, request):
        self.at = request["at"]
        self.verifier = SignatureVerifier(request["secret"], clock=self)

    def now(self):
        return self.at

    def sign(self, body):
        signature = self.verifier.generate_signature(timestamp=str(self.at), body=body)
        return {"X-Slack-Request-Timestamp": str(self.at), "X-Slack-Signature": signature}

    def verify(self, headers, body):
        return self.verifier.is_valid_request(body, headers)


class Paystack:
    """It verifies only."""

    def __init__(self, request):
        self.client = PaystackClient(request["secret"])

    def sign(self, body):
        return None

    def verify(self, headers, body):
        return self.client.is_verified_webhook_payload(body.encode(), headers["X-Paystack-Signature"])


PLAYERS = {
    "standardwebhooks": Standard,
    "svix": Svix,
    "stripe": Stripe,
    "slack_sdk": Slack,
    "pypaystack2": Paystack,
}
answers = {}
for request in json.load(sys.stdin):
    player, body = PLAYERS[request["package"]](request), request["body"]
    signed = player.sign(body)
    headers = {**request["headers"], **(signed or {})}
    answers[request["name"]] = {
        "version": version(request["package"]),
        "signed": signed,
        "verified": player.verify(headers, body),
        "verified_changed": player.verify(headers, request["changed"]),
    }
json.dump(answers, sys.stdout)
