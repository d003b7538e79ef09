"""A FastAPI app that receives the billing service's webhooks on its own event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from flask import Flask

from billhook import Billhook, Handlers
from billhook.events import InvoiceApproved

handlers = Handlers()
approved: dict[str, str] = {}  # of this process: an app that has more than one keeps it in a database


@handlers.on(InvoiceApproved)
def note_approval(event: InvoiceApproved) -> None:
    """Note when an invoice was approved."""
    approved[event.invoice_id] = event.date.isoformat()


# Flask routes and configures the receiver: billhook's options are in its config or in the environment.
flask_app = Flask(__name__)
hooks = Billhook(handlers=[handlers])
hooks.init_app(flask_app, url_prefix="/billing")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Handle what an earlier process left: FastAPI passes no lifespan on to what is mounted in it."""
    hooks.start(flask_app)
    yield


app = FastAPI(lifespan=lifespan)


@app.get("/invoices/{invoice_id}")
async def show_invoice(invoice_id: str) -> dict[str, str | None]:
    """Return what is known of an invoice."""
    return {"id": invoice_id, "approved_at": approved.get(invoice_id)}


app.mount("/hooks", hooks.asgi_app(flask_app))  # last: POST /hooks/billing
