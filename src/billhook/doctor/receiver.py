"""A signed probe through a Flask app: does a delivery reach the receiver, and who answers otherwise?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from billhook.doctor.finding import Finding
from billhook.errors import BillhookError
from billhook.posting import AppPoster, HttpReply, sign
from billhook.receiver.blueprint import WebhookRoute, webhook_routes
from billhook.receiver.wsgi import PROBE, DeliveryProbe

if TYPE_CHECKING:
    from flask import Flask

    from billhook.doctor.setup import Setup

_EVENT_TYPE = "PingTest"
_BODY = b"{}"


def send_probe(setup: Setup, route: WebhookRoute) -> Iterator[Finding]:
    """Send a signed probe to a receiver through all of the app's hooks; it is not stored."""
    app = setup.app
    assert app is not None  # noqa: S101 - the runner has asked
    headers = _sign(setup, route)
    for scheme in ("https", "http"):
        probe = DeliveryProbe()
        # The probe is an object in the WSGI environ, not a header: no request from the network can make one,
        # and the receiver notes in it what it answered, which a hook of the app may change afterwards.
        poster = AppPoster(app, route.path, {PROBE: probe}, scheme)
        answer = poster.post(_BODY, {"X-Forwarded-Proto": "https", **headers})
        ok, text = _judge(app, route, probe, answer, signed=bool(headers))
        if not ok and scheme == "http":  # as a proxy that ends TLS passes a delivery on
            text += "; it came over plain HTTP with X-Forwarded-Proto: https, and over https it is received"
        if not ok:
            break
    yield Finding("ok" if ok else "error", f"POST {route.path}", text)


def _sign(setup: Setup, route: WebhookRoute) -> dict[str, str]:
    """Sign the probe; return nothing if the source has only public keys: then a 401 shows the receiver."""
    secret = route.source.secrets[0]
    if not isinstance(secret, str):
        return {}
    header = route.source.type_header
    try:
        return sign(route.source.scheme, secret, _EVENT_TYPE, _BODY, setup.now, type_header=header)
    except (BillhookError, ValueError):
        return {}


def _judge(
    app: Flask, route: WebhookRoute, probe: DeliveryProbe, answer: HttpReply, *, signed: bool
) -> tuple[bool, str]:
    """Return whether the receiver answered as it should, and what the user is to know or to change."""
    status = answer.status
    if status is None:
        return False, answer.body
    # The order matters: only a request that reached the receiver says anything about the receiver.
    if probe.status is None:
        return False, _answered_by_the_app(app, status)
    if probe.status != status:
        return False, (
            f"billhook answered {probe.status}, but a hook or middleware of the app changed it to {status}: "
            'exclude requests with request.blueprint == "billhook" from after_request hooks'
        )
    if status == 200:
        return True, "verified and answered by billhook (source " + route.source.name + ")"
    if status == 401 and not signed:
        return True, "answered by billhook; the source has only public keys, so the probe could not be signed"
    return False, f"billhook answered {status}: {probe.reason or answer.body}"


def _answered_by_the_app(app: Flask, status: int) -> str:
    text = f"{status} came from the app, not from billhook: "
    if status in (404, 405):
        known = ", ".join(sorted({route.path for route in webhook_routes(app)}))
        return f"{text}no receiver at this path; the app has {known} (url_prefix)"
    if status == 400 and "csrf" in app.extensions:
        return f'{text}probably CSRF protection: call csrf.exempt(app.blueprints["billhook"])'
    kind = (
        "a redirect, for example to a login page"
        if 300 <= status < 400
        else "a before_request hook or an error handler"
    )
    return f'{text}{kind}: exclude requests with request.blueprint == "billhook" from it'
