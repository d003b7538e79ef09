"""Where a command posts to, and with which scheme and secret it signs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import SplitResult

import click

from billhook.cli.context import load_settings, user_app
from billhook.cli.output import print_table
from billhook.cli.params import DEFAULT_BIND, FiniteNumber, parse_http_url
from billhook.errors import ConfigError
from billhook.extension import configured_scheme, get_state
from billhook.posting import AppPoster, HttpPoster
from billhook.receiver.blueprint import find_route
from billhook.settings import Settings
from billhook.signing import Scheme
from billhook.signing.source import DEFAULT_SOURCE

_SCHEMES = ("standard-webhooks", "timestamped-hmac", "timestamped-rsa", "body-hmac")
"""The values of BILLHOOK_SIGNATURE."""
SCHEME = click.option(
    "--scheme", type=click.Choice(_SCHEMES), help="The signature scheme. Default: BILLHOOK_SIGNATURE."
)
TIMEOUT = click.option(
    "--timeout", type=FiniteNumber(0.1, 600), default=10.0, show_default=True,
    help="Seconds to wait for an answer.",
)  # fmt: skip


def parse_target(url: str) -> SplitResult:
    """Return the parts of --to. Raises ConfigError, which repeats none of it: no password."""
    parts = parse_http_url("--to", url)
    if "@" in parts.netloc:
        raise ConfigError(
            "--to has a user name in it: leave it out, a webhook is authenticated by its signature alone"
        )
    return parts


def print_answers(answers: Counter[tuple[int | None, str]]) -> None:
    """Print how often each answer was given, the most frequent first."""
    rows = [
        ("none" if status is None else status, text, number)
        for (status, text), number in answers.most_common()
    ]
    if rows:
        print_table("", ("status", "answer", "count"), rows)


@contextmanager
def open_target(
    url: str | None, source: str | None, timeout_seconds: float
) -> Iterator[tuple[str, HttpPoster | AppPoster]]:
    """Give the target's name and its poster. Without a URL or an app it is where `serve` listens."""
    app = user_app()
    if url is None and app is not None:
        path = find_route(app, source).path
        click.echo(f"note: posting to the app itself, at {path}; use --to URL to post to a server", err=True)
        # The process of a command ends soon: handlers that it began would be interrupted.
        with get_state(app).engine_disabled():
            yield path, AppPoster(app, path)
        return
    url = url or f"http://{DEFAULT_BIND}/{load_settings().url_prefix.strip('/')}"
    with HttpPoster(parse_target(url), timeout_seconds) as poster:
        yield url, poster


def signing_settings(scheme: str | None = None) -> Settings:
    """Return the options in force, with a `scheme` that the command names; for its signatures."""
    # Replay protection is the receiver's duty: a sender may use a scheme that signs no time.
    settings = replace(load_settings(), replay_protection="dedupe-only")
    return settings if scheme is None else replace(settings, signature=scheme)


def choose_signer(
    url: str | None, source: str | None, scheme: str | None, secret_file: str | None
) -> tuple[Scheme, str, str | None]:
    """Return scheme, secret and type header of the options, or of a source of the app. Raises ConfigError."""
    app = user_app()
    settings = signing_settings(scheme)
    secrets: Any = settings.read_secrets(secret_file)
    type_header: str | None = settings.type_header
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
        type_header = own.type_header
    # The first is the newest: with two of them, a rotation is under way, and receivers know both.
    if not secrets:
        if path := secret_file or settings.secrets_file:
            raise ConfigError(f"no secret to sign with: {path!r} holds none, write it into the file")
        raise ConfigError(
            "no secret to sign with: set BILLHOOK_SECRETS_FILE or BILLHOOK_SECRETS, or give --secret-file"
        )
    if not isinstance(secrets[0], str):
        raise ConfigError("this source has only public keys: give the private key with --secret-file")
    return chosen, secrets[0], type_header
