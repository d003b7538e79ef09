"""Links to invoices as people read them: for who has the link, without credentials, and for nobody else.

Source: spec, "Events", invoicePdfUrl of InvoicePaymentStatusChanged. Where it leads is not shown.
"""

from __future__ import annotations

import hashlib
import hmac

from billhook.sandbox import access
from billhook.sandbox.transaction import Transaction

__all__ = ["PAGES", "is_proof", "page_of"]

PAGES = "/_sandbox/pages/invoices"
"""What the paths of these pages begin with."""

_PROOF_CHARACTERS = 40  # 160 bits, in hexadecimal


def page_of(tx: Transaction, invoice_id: str) -> str | None:
    """The URL of an invoice's page; None where it is not known how users reach the sandbox."""
    base_url = tx.options.base_url
    if base_url is None:
        return None
    return f"{base_url.rstrip('/')}{PAGES}/{invoice_id}/{_proof(tx, invoice_id)}"


def is_proof(tx: Transaction, invoice_id: str, given: str) -> bool:
    """Is it from a link that `page_of` gave? Compared in constant time."""
    return hmac.compare_digest(_proof(tx, invoice_id).encode(), given.encode("utf-8", "surrogateescape"))


def _proof(tx: Transaction, invoice_id: str) -> str:
    text = f"invoice page {invoice_id}".encode()
    return hmac.new(access.jwt_key(tx), text, hashlib.sha256).hexdigest()[:_PROOF_CHARACTERS]
