"""Contracts: their terms and what they sell."""

from __future__ import annotations

from flask import Response
from werkzeug.exceptions import NotFound

from billhook.sandbox.billing.contracts import contracts as stored_contracts
from billhook.sandbox.billing.contracts import cycles
from billhook.sandbox.billing.contracts.contracts import CONTRACTS
from billhook.sandbox.billing.contracts.cycles import ContractRecord
from billhook.sandbox.billing.invoices.invoices import INVOICES
from billhook.sandbox.pages.context import PAGE_ROWS, act, context, cursor, pager, show
from billhook.sandbox.pages.json_text import indented
from billhook.sandbox.pages.names import customer_names
from billhook.sandbox.pages.routes import RouteTable
from billhook.sandbox.storage.repository import to_document
from billhook.sandbox.storage.tables.billing import contract as contract_table
from billhook.sandbox.storage.tables.billing import invoice
from billhook.sandbox.storage.transaction import Transaction

__all__ = ["ROUTES"]

ROUTES = RouteTable()
_LATEST = 12


@ROUTES.get("/contracts")
def contracts() -> Response:
    """List the contracts that are not deleted, newest first."""
    with context().runner.reading() as tx:
        there = contract_table.c.deleted_at.is_(None)
        page = CONTRACTS.page(tx, PAGE_ROWS, cursor(), there, newest_first=True)
        names = customer_names(tx, [one.customer_id for one in page.items])
    return show("contracts.html", page=page, names=names, pager=pager(page.next_cursor))


@ROUTES.get("/contracts/<contract_id>")
def contract(contract_id: str) -> Response:
    """Show one contract, with its present cycle, its products and its invoices."""
    with context().runner.reading() as tx:
        # Not by its external id, which may hold slashes; and a deleted one is shown, too.
        found = CONTRACTS.find(tx, contract_id)
        if found is None:
            raise NotFound("There is no contract with this id.")
        where = invoice.c.contract_id == found.id
        return show(
            "contract.html",
            contract=found,
            name=stored_contracts.display_name(found),
            names=customer_names(tx, [found.customer_id]),
            cycle=_present_cycle(tx, found),
            sold=stored_contracts.sold_products(tx, found),
            invoices=INVOICES.page(tx, _LATEST, None, where, newest_first=True),
            document=indented(to_document(found)),
        )


@ROUTES.post("/contracts/<contract_id>/activate")
def activate(contract_id: str) -> Response:
    """Activate a contract that is in review."""
    return act(
        ("contract", {"contract_id": contract_id}), "The contract is active.",
        "POST /_sandbox/contracts/{contractId}/activate", contractId=contract_id,
    )  # fmt: skip


def _present_cycle(tx: Transaction, found: ContractRecord) -> tuple[object, object] | None:
    over = found.end_date is not None and found.end_date <= tx.now
    return None if over or found.start_date > tx.now else cycles.cycle_at(found, tx.now)
