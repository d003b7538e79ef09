"""Post signed deliveries: to a URL or to the user's Flask app in this process, as the service would."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.context import load_settings, user_app
from billhook.cli.params import DEFAULT_BIND, FiniteNumber, parse_http_url
from billhook.errors import ConfigError

if TYPE_CHECKING:
    from flask import Flask

    from billhook.settings import Settings
    from billhook.signing import Scheme

_SCHEMES = ("standard-webhooks", "timestamped-hmac", "timestamped-rsa", "body-hmac")
"""The values of BILLHOOK_SIGNATURE."""
SCHEME = click.option(
    "--scheme", type=click.Choice(_SCHEMES), help="The signature scheme. Default: BILLHOOK_SIGNATURE."
)
TIMEOUT = click.option(
    "--timeout", type=FiniteNumber(0.1, 600), default=10.0, show_default=True,
    help="Seconds to wait for an answer.",
)  # fmt: skip
_MOST_CHARACTERS = 4_096
"""How much of an answer is read."""
_HEADERS = {"Content-Type": "application/json", "User-Agent": "billhook"}


@dataclass(frozen=True, slots=True)
class HttpReply:
    """Hold the answer to a POST. `status` is None if none was received; `body` is then the reason."""

    status: int | None
    body: str
    seconds: float


def sign(
    scheme: Scheme, secret: str, event_type: str, body: bytes, now: datetime, message_id: str | None = None
) -> dict[str, str]:
    """Return the headers of a delivery. Raises ValueError for what the scheme cannot sign."""
    kind = {"X-Webhook-Type": event_type} if event_type else {}
    return kind | dict(scheme.sign(body, secret, event_type=event_type, now=now, message_id=message_id))


# http.client and not httpx: `send` and `demo` work without the extra `client`.
class HttpPoster:
    """Post to one URL over a connection that it keeps alive: no redirects, no proxies. A context manager."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        """Check the URL. Raises ConfigError, which repeats none of it: no password."""
        self._parts = parse_http_url("--to", url)
        if "@" in self._parts.netloc:
            raise ConfigError(
                "--to has a user name in it: leave it out, a webhook is authenticated by its signature alone"
            )
        self._timeout_seconds = timeout_seconds
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> HttpPoster:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def post(self, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        """Post a delivery. A network failure does not raise: it is a result without a status."""
        reused = self._connection is not None
        started = time.monotonic()
        try:
            status, text = self._exchange(body, headers)
        except (OSError, http.client.HTTPException) as error:
            self._close()
            # The server may close an idle connection just as this request is sent: that is no answer yet. If
            # the first request did arrive after all, the second is a duplicate, which receivers recognise.
            if reused and isinstance(error, ConnectionError | http.client.RemoteDisconnected):
                return self.post(body, headers)
            return HttpReply(None, _reason(error), time.monotonic() - started)
        return HttpReply(status, text, time.monotonic() - started)

    def _exchange(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        if self._connection is None:
            secure = self._parts.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            self._connection = kind(
                self._parts.hostname or "", self._parts.port, timeout=self._timeout_seconds
            )
        target = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        self._connection.request("POST", target, body, {**_HEADERS, **headers})
        response = self._connection.getresponse()
        text = response.read(_MOST_CHARACTERS).decode("utf-8", "replace")
        # A longer answer was not read to its end, and its rest would be taken for the next answer.
        if not response.isclosed() or response.will_close:
            self._close()
        return response.status, text

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


@dataclass(frozen=True, slots=True)
class AppPoster:
    """Post to a path of a Flask app in this process, without a server.

    `environ` is added to the WSGI environ of each request; over TLS, for an app may redirect plain HTTP.
    """

    app: Flask
    path: str
    environ: dict[str, Any] = field(default_factory=dict)
    scheme: str = "https"

    def post(self, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        """Post a delivery. A failure of the app does not raise: it is a result without a status."""
        started = time.monotonic()
        try:
            response = self.app.test_client().post(
                self.path,
                data=body,
                headers={**_HEADERS, **headers},
                url_scheme=self.scheme,
                environ_overrides=self.environ,
            )
        except Exception as error:  # noqa: BLE001 - the app's own code, which may raise anything
            return HttpReply(None, f"no answer: the app raised {type(error).__name__}: {error}", 0.0)
        with response:
            text = response.get_data(as_text=True)[:_MOST_CHARACTERS]
            return HttpReply(response.status_code, text, time.monotonic() - started)


@contextmanager
def open_target(
    url: str | None, source: str | None, timeout_seconds: float
) -> Iterator[tuple[str, HttpPoster | AppPoster]]:
    """Give the target's name and its poster. Without a URL or an app it is where `serve` listens."""
    from billhook.extension import get_state
    from billhook.receiver.blueprint import find_route

    app = user_app()
    if url is None and app is not None:
        path = find_route(app, source).path
        click.echo(f"note: posting to the app itself, at {path}; use --to URL to post to a server", err=True)
        # The process of a command ends soon: handlers that it began would be interrupted.
        with get_state(app).engine_disabled():
            yield path, AppPoster(app, path)
        return
    url = url or f"http://{DEFAULT_BIND}/{load_settings().url_prefix.strip('/')}"
    with HttpPoster(url, timeout_seconds) as poster:
        yield url, poster


def signing_settings(scheme: str | None = None) -> Settings:
    """Return the options in force, with a `scheme` that the command names; for its signatures."""
    # Replay protection is the receiver's duty: a sender may use a scheme that signs no time.
    settings = replace(load_settings(), replay_protection="dedupe-only")
    return settings if scheme is None else replace(settings, signature=scheme)


def choose_signer(
    url: str | None, source: str | None, scheme: str | None, secret_file: str | None
) -> tuple[Scheme, str]:
    """Return the options' scheme and secret, or those of a source of the app. Raises ConfigError."""
    from billhook.extension import configured_scheme
    from billhook.receiver.blueprint import find_route
    from billhook.signing.source import DEFAULT_SOURCE

    app = user_app()
    settings = signing_settings(scheme)
    secrets: Any = settings.read_secrets(secret_file)
    if app is None:
        if source not in (None, DEFAULT_SOURCE):
            raise ConfigError(
                f"there is no source {source!r} here: other sources than the default belong to a Flask app, "
                f"so run `flask --app … billhook send --source {source}`"
            )
        chosen = configured_scheme(settings)
    else:
        own = find_route(app, source, url).source
        chosen = own.scheme if scheme is None else configured_scheme(settings)
        secrets = secrets if secret_file is not None else own.secrets
    # The first is the newest: with two of them, a rotation is under way, and receivers know both.
    if not secrets:
        if path := secret_file or settings.secrets_file:
            raise ConfigError(f"no secret to sign with: {path!r} holds none, write it into the file")
        raise ConfigError("no secret to sign with: set BILLHOOK_SECRETS, or give --secret-file")
    if not isinstance(secrets[0], str):
        raise ConfigError("this source has only public keys: give the private key with --secret-file")
    return chosen, secrets[0]
