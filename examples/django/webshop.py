"""A Django project in one file that receives the billing service's webhooks on its own event loop."""

from __future__ import annotations

import os
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from flask import Flask

from billhook import Billhook, Handlers
from billhook.events import InvoiceApproved

handlers = Handlers()
approved: dict[str, str] = {}  # of this process: an app that has more than one keeps it in a database


@handlers.on(InvoiceApproved)
def note_approval(event: InvoiceApproved) -> None:
    """Note when an invoice was approved."""
    approved[event.invoice_id] = event.date.isoformat()


def show_invoice(_: HttpRequest, invoice_id: str) -> JsonResponse:
    """Return what is known of an invoice."""
    return JsonResponse({"id": invoice_id, "approved_at": approved.get(invoice_id)})


urlpatterns = [path("invoices/<invoice_id>", show_invoice)]
settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"], ROOT_URLCONF=__name__, SECRET_KEY=os.environ["DJANGO_SECRET_KEY"]
)
django.setup()

# Flask routes and configures the receiver: billhook's options are in its config or in the environment.
flask_app = Flask(__name__)
hooks = Billhook(handlers=[handlers])
hooks.init_app(flask_app, url_prefix="/hooks/billing")

_django = get_asgi_application()
_receiver = hooks.asgi_app(flask_app)


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Serve the webhooks and the server's lifespan by billhook, everything else by Django."""
    ours = scope["type"] == "lifespan" or scope["path"].startswith("/hooks/")
    await (_receiver if ours else _django)(scope, receive, send)
