"""Links to invoice pages for people: a page needs no credentials, but only its link opens it.

Source: spec, "Events", invoicePdfUrl of InvoicePaymentStatusChanged. The specification does not show
what it links to.
"""

from __future__ import annotations

import hashlib
import hmac

from billhook.sandbox import tokens
from billhook.sandbox.storage.transaction import Transaction

__all__ = ["PAGES_PATH", "is_valid_proof", "page_url"]

PAGES_PATH = "/_sandbox/pages/invoices"
"""The path under which the pages are."""

_PROOF_CHARACTERS = 40  # 160 bits, in hexadecimal


def page_url(tx: Transaction, invoice_id: str) -> str | None:
    """Return the URL of an invoice's page; None if the sandbox's base URL is not configured."""
    base_url = tx.options.base_url
    if base_url is None:
        return None
    return f"{base_url.rstrip('/')}{PAGES_PATH}/{invoice_id}/{_proof(tx, invoice_id)}"


def is_valid_proof(tx: Transaction, invoice_id: str, proof: str) -> bool:
    """Return whether `proof` is that of a link from `page_url`. Compares in constant time."""
    return hmac.compare_digest(_proof(tx, invoice_id).encode(), proof.encode("utf-8", "surrogateescape"))


def _proof(tx: Transaction, invoice_id: str) -> str:
    # The prefix keeps this use of the key apart from that for access tokens.
    text = f"invoice page {invoice_id}".encode()
    return hmac.new(tokens.jwt_key(tx), text, hashlib.sha256).hexdigest()[:_PROOF_CHARACTERS]
