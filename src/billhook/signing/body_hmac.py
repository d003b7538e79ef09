"""A signature over the body and nothing else, as GitHub sends it."""

from __future__ import annotations

from typing import ClassVar, final

from billhook.signing.template import ReplayProtection, SignatureTemplate

__all__ = ["BodyHMAC"]


@final
class BodyHMAC(SignatureTemplate):
    """Hex HMAC-SHA256 of the body, after `prefix`.

    No time is signed, so a captured delivery verifies for ever, and only the inbox's memory of its key
    stops it; `replay_protection="dedupe-only"` says that the user knows.
    """

    __slots__ = ()

    name: ClassVar[str] = "body-hmac"

    def __init__(
        self, header: str, prefix: str = "sha256=", *, replay_protection: ReplayProtection | None = None
    ) -> None:
        super().__init__(
            content="{body}", signature_header=header, prefix=prefix, replay_protection=replay_protection
        )
