"""The signing secret, to copy into a receiver: shown on request only, and never at an address of its own."""

from __future__ import annotations

import shlex

from flask import Response, request

from billhook.errors import SandboxError
from billhook.sandbox.pages.context import context, go, refusal, show
from billhook.sandbox.pages.routes import RouteTable
from billhook.sandbox.webhooks import signing_secrets

__all__ = ["ROUTES"]

ROUTES = RouteTable()


@ROUTES.get("/secrets")
def secrets() -> Response:
    """Show how deliveries are signed, and the buttons that show the secret or make another."""
    return _page(None)


@ROUTES.post("/secrets/show")
def show_secret() -> Response:
    """Show what receivers verify with: the newest secret, or the public key of a pair."""
    # A POST, so that no prefetch, no history and no link shows it.
    with context().runner.reading() as tx:
        return _page(signing_secrets.verification_secret(tx))


@ROUTES.post("/secrets/rotate")
def rotate_secret() -> Response:
    """Sign with a new secret from now on."""
    overlap = "overlap" in request.form
    try:
        context().runner.run("POST /_sandbox/secrets/rotate", {"overlap": overlap})
    except SandboxError as error:
        return go("secrets", refusal(error), good=False)
    until = ", and with the previous one until the next rotation" if overlap else ""
    return go("secrets", f"Deliveries are signed with a new secret{until}. Give it to your receivers.")


def _page(secret: signing_secrets.Secret | None) -> Response:
    runner = context().runner
    with runner.reading() as tx:
        signer = signing_secrets.current_signer(tx)
    texts = {} if secret is None else {"": secret} if isinstance(secret, str) else dict(secret)
    return show(
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
