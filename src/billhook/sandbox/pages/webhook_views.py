"""Webhooks: subscriptions, faults as switches, and the signing secret to copy into a receiver."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from flask import Response, request, url_for
from sqlalchemy import Row

from billhook.errors import SandboxError
from billhook.events import EVENT_TYPES
from billhook.sandbox.pages.context import (
    RouteTable,
    error_sentence,
    page_context,
    redirect_to,
    render,
)
from billhook.sandbox.pages.texts import count_text
from billhook.sandbox.storage.repository import MAX_PAGE
from billhook.sandbox.storage.transaction import Transaction
from billhook.sandbox.webhooks import delivery_log, outbox, signing_secrets
from billhook.sandbox.webhooks.outcomes import FaultKind

ROUTES = RouteTable()
FAULT_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        FaultKind.DUPLICATE: "sent twice at the same time",
        FaultKind.DELAY: "sent 5 seconds late",
        FaultKind.REORDER: "held until a later one was sent, for 10 seconds at most",
        FaultKind.DROP: "the receiver's answer is lost, so it is sent again",
        FaultKind.CORRUPT: "one bit of the body is flipped after signing",
        FaultKind.WRONG_SECRET: "signed with a random secret",
        FaultKind.STALE: "signed an hour ago",
        FaultKind.LOSE: "never sent: only a resend delivers it",
    }
)
"""What each fault does to a delivery."""
_SHARES = MappingProxyType({"1": "every delivery", "0.5": "half of them", "0.1": "one in ten"})


@ROUTES.get("/webhooks")
def webhooks() -> Response:
    """Show each address with its subscriptions."""
    runner = page_context().runner
    with runner.reading() as tx:
        addresses = _addresses(tx)
        states = delivery_log.count_states(tx)
    return render(
        "webhooks.html",
        addresses=addresses,
        states=states,
        types=sorted(EVENT_TYPES),
        allow_private=runner.service.options.allow_private,
    )


def _addresses(tx: Transaction) -> dict[str, list[Row[Any]]]:
    """Return the subscriptions of each address, oldest first."""
    found: dict[str, list[Row[Any]]] = {}
    for row in outbox.subscription_page(tx, MAX_PAGE, None).items:
        found.setdefault(row.callback_url, []).append(row)
    return found


@ROUTES.post("/webhooks")
def subscribe() -> Response:
    """Subscribe an address to each type of event."""
    body = {"callbackUrl": request.form.get("url", "").strip()}
    try:
        for event_type in EVENT_TYPES:
            page_context().runner.run("POST /webhook", {**body, "eventType": event_type})
    except SandboxError as error:
        return redirect_to(url_for(".webhooks"), error_sentence(error), good=False)
    done = f"The address is subscribed to all {len(EVENT_TYPES)} types of events."
    return redirect_to(url_for(".webhooks"), done)


@ROUTES.post("/webhooks/end")
def end_address() -> Response:
    """End all subscriptions of an address."""
    runner, url = page_context().runner, request.form.get("url", "")
    with runner.reading() as tx:
        ids = [row.id for row in _addresses(tx).get(url, ())]
    for subscription_id in ids:
        runner.run("DELETE /_sandbox/subscriptions/{subscriptionId}", subscriptionId=subscription_id)
    ended = count_text(len(ids), "subscription is", "subscriptions are")
    return redirect_to(url_for(".webhooks"), f"{ended} ended, and their pending deliveries are cancelled.")


@ROUTES.get("/faults")
def faults() -> Response:
    """Show the faults as switches."""
    active = page_context().runner.run("GET /_sandbox/faults").faults
    struck: Counter[str] = Counter()
    for one in active:
        struck[one.fault] += one.struck
    return render(
        "faults.html",
        faults=FAULT_TEXTS,
        active={one.fault: one for one in reversed(active)},
        struck=struck,
        shares=_SHARES,
    )


@ROUTES.get("/secrets")
def secrets() -> Response:
    """Show how deliveries are signed, and the buttons that show the secret or make another."""
    return _page(None)


@ROUTES.post("/secrets/show")
def show_secret() -> Response:
    """Show what receivers verify with: the newest secret, or the public key of a pair."""
    # A POST, so that no prefetch, no history and no link shows it.
    with page_context().runner.reading() as tx:
        return _page(signing_secrets.verification_secret(tx))


@ROUTES.post("/secrets/rotate")
def rotate_secret() -> Response:
    """Sign with a new secret from now on."""
    overlap = "overlap" in request.form
    try:
        page_context().runner.run("POST /_sandbox/secrets/rotate", {"overlap": overlap})
    except SandboxError as error:
        return redirect_to(url_for(".secrets"), error_sentence(error), good=False)
    until = ", and with the previous one until the next rotation" if overlap else ""
    done = f"Deliveries are signed with a new secret{until}. Give it to your receivers."
    return redirect_to(url_for(".secrets"), done)


def _page(secret: signing_secrets.Secret | None) -> Response:
    runner = page_context().runner
    with runner.reading() as tx:
        signer = signing_secrets.current_signer(tx)
    texts = {} if secret is None else {"": secret} if isinstance(secret, str) else dict(secret)
    return render(
        "secrets.html",
        scheme=signer.scheme.name,
        headers=sorted(signer.scheme.headers),
        can_overlap=signer.can_overlap,
        overlapping=len(signer.secrets) > 1,
        secrets=texts,
        commands={name: _export(text) for name, text in texts.items()},
    )


def _export(text: str) -> str | None:
    """Return the line for a shell; None for a key of several lines, which belongs into a file."""
    return None if "\n" in text else f"export BILLHOOK_SECRETS={shlex.quote(text)}"
