"""Webhooks: subscriptions, faults as switches, and the signing secret to copy into a receiver."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from flask import Response, request

from billhook.errors import SandboxError
from billhook.events import EVENT_TYPES
from billhook.sandbox.pages.context import (
    PAGE_ROWS,
    RouteTable,
    error_sentence,
    page_context,
    page_cursor,
    page_links,
    redirect_with_notice,
    render,
    run_operation,
)
from billhook.sandbox.pages.texts import parse_number
from billhook.sandbox.webhooks import delivery_log, outbox, signing_secrets
from billhook.sandbox.webhooks.outcomes import FaultKind

ROUTES = RouteTable()
ALL_TYPES = "all"
"""In the form of a subscription: one for each type of event."""
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
    """Show the subscriptions and the faults."""
    runner = page_context().runner
    with runner.reading() as tx:
        page = outbox.subscription_page(tx, PAGE_ROWS, page_cursor())
        states = delivery_log.count_states(tx)
    active = runner.run("GET /_sandbox/faults").faults
    struck: Counter[str] = Counter()
    for one in active:
        struck[one.fault] += one.struck
    return render(
        "webhooks.html",
        page=page,
        pager=page_links(page.next_cursor),
        states=states,
        types=sorted(EVENT_TYPES),
        all_types=ALL_TYPES,
        allow_private=runner.service.options.allow_private,
        faults=FAULT_TEXTS,
        active={one.fault: one for one in reversed(active)},
        struck=struck,
        shares=_SHARES,
    )


@ROUTES.post("/webhooks")
def subscribe() -> Response:
    """Subscribe a URL to one type of event, or to all."""
    url, wanted = request.form.get("url", "").strip(), request.form.get("type", "")
    types = list(EVENT_TYPES) if wanted == ALL_TYPES else [wanted]
    text = request.form.get("threshold", "").strip()
    threshold = parse_number(text)
    if text and threshold is None:
        return redirect_with_notice("webhooks", "Refused: the threshold is not a number", good=False)
    try:
        for event_type in types:
            body: dict[str, Any] = {"callbackUrl": url, "eventType": event_type}
            if threshold is not None and len(types) == 1:
                body["threshold"] = threshold
            page_context().runner.run("POST /webhook", body)
    except SandboxError as error:
        return redirect_with_notice("webhooks", error_sentence(error), good=False)
    count = "1 type" if len(types) == 1 else f"{len(types)} types"
    return redirect_with_notice("webhooks", f"The address is subscribed to {count} of events.")


@ROUTES.post("/webhooks/<subscription_id>/ping")
def ping(subscription_id: str) -> Response:
    """Send a PingTest to the address of a subscription."""
    key = "POST /_sandbox/subscriptions/{subscriptionId}/ping"
    try:
        sent = page_context().runner.run(key, subscriptionId=subscription_id)
    except SandboxError as error:
        return redirect_with_notice("webhooks", error_sentence(error), good=False)
    page_context().runner.deliver()
    return redirect_with_notice("event", "A PingTest is sent.", event_id=sent.raised_id)


@ROUTES.post("/webhooks/<subscription_id>/remove")
def unsubscribe(subscription_id: str) -> Response:
    """End a subscription."""
    key = "DELETE /_sandbox/subscriptions/{subscriptionId}"
    done = "The subscription is ended, and its pending deliveries are cancelled."
    return run_operation(("webhooks", {}), done, key, subscriptionId=subscription_id)


@ROUTES.post("/faults/<kind>/on")
def fault_on(kind: str) -> Response:
    """Inject a fault from now on, into all deliveries or a share of them."""
    share = request.form.get("share", "1")
    if share not in _SHARES:
        return redirect_with_notice("webhooks", "Refused: choose one of the shares", good=False)
    body = {"fault": kind, "probability": Decimal(share)}
    return run_operation(("webhooks", {}), f"The fault {kind} is on.", "POST /_sandbox/faults", body)


@ROUTES.post("/faults/<kind>/off")
def fault_off(kind: str) -> Response:
    """Remove the faults of a kind."""
    return run_operation(
        ("webhooks", {}), f"The fault {kind} is off.", "DELETE /_sandbox/faults", {"fault": kind}
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
        return redirect_with_notice("secrets", error_sentence(error), good=False)
    until = ", and with the previous one until the next rotation" if overlap else ""
    return redirect_with_notice(
        "secrets", f"Deliveries are signed with a new secret{until}. Give it to your receivers."
    )


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
