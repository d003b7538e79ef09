"""The dashboard of the standalone app: users and passwords from a file, asked for by HTTP's basic scheme.

Browsers send the password with each request, so use it over TLS, or through a tunnel to the own machine.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flask import Flask, request
from werkzeug.datastructures import WWWAuthenticate
from werkzeug.exceptions import Unauthorized

from billhook.dashboard.dashboard import Dashboard
from billhook.errors import ConfigError
from billhook.file_modes import check_secret_file

__all__ = ["DashboardUser", "add_dashboard", "read_password_file"]

logger = logging.getLogger("billhook.dashboard")

OPTION = "BILLHOOK_DASHBOARD"
FEWEST_CHARACTERS = 12
"""Nothing slows an attacker down who tries passwords, so each must be too long to be found."""
_READ_ONLY = "read-only "


@dataclass(frozen=True, slots=True)
class DashboardUser:
    """A user of the dashboard: `digest` is the SHA-256 of the password, which itself is not kept."""

    name: str
    digest: bytes
    may_act: bool


def add_dashboard(app: Flask, path: str) -> None:
    """Add the dashboard to an app at /billhook, for the users of the file. Raises ConfigError."""
    users = read_password_file(path)
    if not app.secret_key:
        # Not guessable from a token, even where a password is: scrypt takes its time.
        digests = b"".join(user.digest for user in users)
        app.secret_key = hashlib.scrypt(digests, salt=b"billhook dashboard", n=2**14, r=8, p=1)

    def may_look() -> str:
        return _signed_in(users).name

    def may_act() -> bool:
        return _signed_in(users).may_act

    Dashboard(may_look=may_look, may_act=may_act).init_app(app)


def read_password_file(path: str) -> tuple[DashboardUser, ...]:
    """Return the users in a file: USER:PASSWORD a line; `read-only USER:PASSWORD` for one who may only look.

    Blank lines and those that begin with # are skipped. Raises ConfigError; no password is in its text.
    """
    check_secret_file(OPTION, path)
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{OPTION} {path!r} cannot be read: {type(error).__name__}") from None
    users = tuple(_parse(path, lines))
    if not users:
        raise ConfigError(f"{OPTION} {path!r} names no user: write a line USER:PASSWORD into it")
    if len({user.name for user in users}) < len(users):
        raise ConfigError(f"{OPTION} {path!r} names a user twice")
    return users


def _parse(path: str, lines: list[str]) -> Iterator[DashboardUser]:
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        name, colon, password = line.removeprefix(_READ_ONLY).strip().partition(":")
        if not (name and colon and name.isprintable() and " " not in name):
            raise ConfigError(f"{OPTION} {path!r}, line {number}: write USER:PASSWORD, a name without spaces")
        if len(password) < FEWEST_CHARACTERS:
            raise ConfigError(
                f"{OPTION} {path!r}, line {number}: the password of {name} has fewer than "
                f"{FEWEST_CHARACTERS} characters; make one: head -c 18 /dev/urandom | base64"
            )
        yield DashboardUser(name, _digest(password), not line.startswith(_READ_ONLY))


def _signed_in(users: tuple[DashboardUser, ...]) -> DashboardUser:
    """Return the user of the current request. Raises Unauthorized, which has the browser ask."""
    sent = request.authorization
    if sent is not None and sent.type == "basic":
        digest, name = _digest(sent.password or ""), (sent.username or "").encode()
        # Every user is compared, so that the time tells neither names nor passwords.
        found = [
            user
            for user in users
            if hmac.compare_digest(user.digest, digest) & hmac.compare_digest(user.name.encode(), name)
        ]
        if found:
            return found[0]
        logger.warning("sign-in to the dashboard refused: no such user and password")
    challenge = WWWAuthenticate("basic", {"realm": "billhook dashboard", "charset": "UTF-8"})
    raise Unauthorized("Sign in to see the dashboard.", www_authenticate=challenge)


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest()
