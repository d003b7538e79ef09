"""Where `billhook send` posts to, and how that is signed: a URL, or the user's own Flask app."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import click

from billhook.cli.binding import DEFAULT_BIND
from billhook.cli.post import Answer, Poster
from billhook.cli.where import the_settings, users_app
from billhook.errors import ConfigError

if TYPE_CHECKING:
    from flask import Flask

    from billhook.receiver.doors import Door
    from billhook.signing import Scheme

__all__ = ["AppPoster", "Posts", "door_of", "signer_of", "target_of"]

_READ_CHARACTERS = 4_096


class Posts(Protocol):
    """A context manager that posts deliveries."""

    def __enter__(self) -> Posts: ...

    def __exit__(self, *_: object) -> None: ...

    def post(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """One delivery; no failure on the way raises."""
        ...


class AppPoster:
    """Posts to a path of a Flask app in this process, without a server."""

    def __init__(self, app: Flask, path: str, environ: Mapping[str, Any] | None = None) -> None:
        """`environ` is added to the WSGI environ of each request."""
        self._client = app.test_client()
        self._path = path
        self._environ = dict(environ or {})

    def __enter__(self) -> AppPoster:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def post(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """One delivery, as if it came by TLS: an app that redirects plain HTTP must not do so here."""
        started = time.monotonic()
        try:
            response = self._client.post(
                self._path,
                data=body,
                headers={"Content-Type": "application/json", "User-Agent": "billhook", **headers},
                url_scheme="https",
                environ_overrides=self._environ,
            )
        except Exception as error:  # noqa: BLE001 - the app's own code, which may raise anything
            return Answer(None, f"no answer: the app raised {type(error).__name__}: {error}", 0.0)
        with response:
            text = response.get_data(as_text=True)[:_READ_CHARACTERS]
            return Answer(response.status_code, text, time.monotonic() - started)


def target_of(url: str | None, source: str | None, timeout_seconds: float) -> tuple[str, Posts]:
    """What to call it, and who posts there; with neither URL nor app it is where `serve` listens."""
    app = users_app()
    if url is None and app is not None:
        path = door_of(app, source).path
        click.echo(f"note: sent to the app itself, at {path}; --to URL sends to a server", err=True)
        return path, AppPoster(app, path)
    if url is None:
        url = f"http://{DEFAULT_BIND}/{the_settings().url_prefix.strip('/')}"
    return url, Poster(url, timeout_seconds)


def door_of(app: Flask, source: str | None, url: str | None = None) -> Door:
    """The app's door of this source; without one that with the URL's path, the default's, or the only one.

    Raises ConfigError where it is none of these.
    """
    from billhook.receiver.doors import doors_of
    from billhook.signing.source import DEFAULT_SOURCE

    doors = doors_of(app)
    if source is None and url is not None:
        for door in doors:
            if urlsplit(url).path.rstrip("/") == door.path.rstrip("/"):
                return door
    named = [door for door in doors if door.source.name == (source or DEFAULT_SOURCE)]
    if named or (source is None and len(doors) == 1):
        return (named or doors)[0]
    if not doors:
        raise ConfigError("this Flask app has no billhook: call Billhook(...).init_app(app)")
    known = ", ".join(sorted({door.source.name for door in doors}))
    wrong = "has several sources" if source is None else f"has no source {source!r}"
    raise ConfigError(f"the app {wrong}: give --source one of {known}")


def signer_of(
    url: str | None, source: str | None, scheme: str | None, secret_file: str | None
) -> tuple[Scheme, str]:
    """How to sign and with which secret: the options', or those of a source of the app. ConfigError."""
    from billhook.extension import scheme_of
    from billhook.settings import read_secrets_file
    from billhook.signing.source import DEFAULT_SOURCE

    app = users_app()
    # The sender is not who has to be protected from replays.
    settings = dataclasses.replace(the_settings(), replay_protection="dedupe-only")
    if scheme is not None:
        settings = dataclasses.replace(settings, signature=scheme)
    secrets: Any = settings.secrets
    path = secret_file or settings.secrets_file
    if path is not None:
        secrets = read_secrets_file(path)
    if app is None:
        if source not in (None, DEFAULT_SOURCE):
            raise ConfigError(
                f"there is no source {source!r} here: other sources than the default one are a Flask app's, "
                f"`flask --app … billhook send --source {source}`"
            )
        chosen = scheme_of(settings)
    else:
        own = door_of(app, source, url).source
        chosen = own.scheme if scheme is None else scheme_of(settings)
        secrets = secrets if secret_file is not None else own.secrets
    if not secrets:
        raise ConfigError("no secret to sign with: set BILLHOOK_SECRETS, or give --secret-file")
    if not isinstance(secrets[0], str):
        raise ConfigError("this source has public keys only: give the private key by --secret-file")
    return chosen, secrets[0]
