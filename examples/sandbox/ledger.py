"""An app that books what its billing service has approved."""

from flask import Flask, current_app

from billhook import Billhook, Delivery, Handlers
from billhook.events import InvoiceApproved

handlers = Handlers()


@handlers.on(InvoiceApproved)
def book(event: InvoiceApproved, delivery: Delivery) -> None:
    """The event says which invoice; the service's API says how much."""
    current_app.extensions["books"][event.invoice_id] = delivery.client.invoices.get(event.invoice_id).amount


def create_app() -> Flask:
    """The app; billhook's options come from the environment."""
    app = Flask(__name__)
    app.extensions["books"] = {}  # a database in real life
    Billhook(handlers=[handlers]).init_app(app, url_prefix="/webhooks/billing")
    return app
