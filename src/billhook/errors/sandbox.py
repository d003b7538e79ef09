"""What the sandbox of the billing service answers when it does not do what it was asked."""

from __future__ import annotations

from billhook.errors.root import BillhookError

__all__ = ["Refusal"]


class Refusal(BillhookError):
    """The sandbox does not do what it was asked: `status`, and `body` in the specification's shape."""

    def __init__(
        self, status: int, code: str, message: str, body: bytes, retry_after_seconds: int | None = None
    ) -> None:
        self.status = status
        self.code = code
        self.body = body
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"{status} {code}: {message}")
