"""A Flask app that receives GitHub's webhooks, and those of the billing service beside them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from flask import Flask
from pydantic import ConfigDict

from billhook import Billhook, Delivery, Handlers, Source
from billhook.events import Event, InvoiceApproved, WireModel
from billhook.signing import BodyHMAC

handlers = Handlers()

# GitHub writes snake_case, as Python does.
AS_WRITTEN = ConfigDict(alias_generator=None)


class Repository(WireModel):
    """The part of a body that says where it happened."""

    model_config = AS_WRITTEN

    full_name: str


class PullRequest(Event, type="pull_request"):
    """A pull request was opened, closed or changed."""

    model_config = AS_WRITTEN

    action: str
    number: int
    repository: Repository
    pull_request: dict[str, Any]


@handlers.on(PullRequest, sources=("github",))
def note_merge(event: PullRequest, delivery: Delivery) -> None:
    """Write a line for each pull request that was closed."""
    if event.action == "closed":
        with Path("closed.txt").open("a", encoding="utf-8") as file:
            print(f"{event.repository.full_name}#{event.number}", file=file)


@handlers.on(InvoiceApproved)
def note_invoice(event: InvoiceApproved) -> None:
    """Print what the billing service sent."""
    print(f"invoice {event.invoice_id} approved")


app = Flask(__name__)
github = Source(
    "github",
    scheme=BodyHMAC("X-Hub-Signature-256", replay_protection="dedupe-only"),
    secrets=[os.environ["GITHUB_WEBHOOK_SECRET"]],
    type_header="X-GitHub-Event",
)
hooks = Billhook(handlers=[handlers], sources=[github])
hooks.init_app(app, url_prefix="/webhooks")
