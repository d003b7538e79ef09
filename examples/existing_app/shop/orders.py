"""The shop's own pages."""

from __future__ import annotations

from flask import Blueprint, abort, jsonify, request
from flask.typing import ResponseReturnValue

from shop.database import transaction

blueprint = Blueprint("orders", __name__)


@blueprint.get("/invoices/<invoice_id>")
def show_invoice(invoice_id: str) -> ResponseReturnValue:
    """What the shop knows of an invoice: all of it was told by webhooks."""
    with transaction() as connection:
        row = connection.execute(
            "SELECT approved_at, status FROM invoice WHERE id = ?", (invoice_id,)
        ).fetchone()
    if row is None:
        abort(404)
    return jsonify(id=invoice_id, approved_at=row[0], status=row[1])


@blueprint.post("/orders")
def place_order() -> ResponseReturnValue:
    """Take an order, as big as MAX_CONTENT_LENGTH allows."""
    return jsonify(bytes=len(request.get_data())), 201
