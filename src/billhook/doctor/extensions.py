"""Findings about extensions that check every request of an app: which of them deliveries are exempt from."""

from __future__ import annotations

from collections.abc import Iterator

from billhook.doctor.examined import Setup
from billhook.doctor.finding import Finding
from billhook.extension import get_state
from billhook.receiver.exemptions import find_request_checks, packages_of

_REDIRECTING = {"flask_talisman": "Flask-Talisman", "flask_sslify": "Flask-SSLify"}


def about_extensions(setup: Setup) -> Iterator[Finding]:
    """Say what deliveries are exempt from, and name what can refuse them."""
    app = setup.app
    if app is None:
        return
    exemptions, exempt = get_state(app).exemptions, []
    for check in find_request_checks(app):
        if exemptions.exempt_from(check):
            exempt.append(str(check))
            continue
        yield Finding(
            "note", "rate-limits", f"the rate limits of {check.name} apply to deliveries",
            "beyond them the service gets 429: it sends again later, or gives up at some time",
            "see that they are far above its peaks, or unset BILLHOOK_RATE_LIMITS",
        )  # fmt: skip
    if exempt:
        yield Finding("ok", "extensions", f"deliveries are exempt from {', '.join(exempt)}")
    hooks = app.before_request_funcs.get(None, ())
    owners = [package for hook in hooks for package in packages_of(getattr(hook, "__self__", None))]
    for name in [_REDIRECTING[package] for package in dict.fromkeys(owners) if package in _REDIRECTING]:
        yield Finding(
            "note", "https-redirect", f"{name} redirects requests that come without TLS",
            "to the service a redirect is a failure, and no delivery arrives where a proxy ends TLS and says "
            "nothing of it",
            "give the service an https:// address, and have the proxy send X-Forwarded-Proto: https",
        )  # fmt: skip
