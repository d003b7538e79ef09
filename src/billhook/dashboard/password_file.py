"""The dashboard of the standalone app: users and passwords from a file, with HTTP's basic authentication.

Browsers send the password with each request, so use it over TLS, or through a tunnel to the machine.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from ipaddress import IPv6Address
from typing import NamedTuple

from flask import Flask, Response, request
from werkzeug.datastructures import WWWAuthenticate
from werkzeug.exceptions import Unauthorized

from billhook.basics.file_modes import read_secret_file
from billhook.dashboard.dashboard import Dashboard
from billhook.errors import ConfigError
from billhook.logs import LimitedLog

logger = logging.getLogger("billhook.dashboard")

OPTION = "BILLHOOK_DASHBOARD"
FEWEST_CHARACTERS = 12
UNGUESSABLE_CHARACTERS = 24
_FEWEST_DIFFERENT = 12
"""A password that is at least so long, with at least 12 different characters, small and capital letters and
digits among them, cannot be found however many are tried: it is always let in, and its user cannot be kept
out. Nearly all that the command of the manual makes are such, and hardly any that consist of words."""
WRONG_TRIES = 5
MAX_WRONG_TRIES = 50
WRONG_TRIES_SECONDS = 1.0
"""After WRONG_TRIES wrong passwords of a client in this time, a user with a shorter password is refused to it
until it is over; after MAX_WRONG_TRIES to all clients, since an attacker may have many addresses.

Each user is counted alone, for behind a proxy all clients are one: with several, each has an equal part of
MAX_WRONG_TRIES, and at least two clients' tries. Names of no user count among themselves: a stranger who
knows no name keeps no operator out.
"""
_READ_ONLY = "read-only "
_LOG_OUT = "/billhook/log-out"


class DashboardUser(NamedTuple):
    """A user of the dashboard: `digest` is the SHA-256 of the password, which itself is not kept."""

    name: str
    digest: bytes
    may_act: bool
    may_be_guessed: bool = True


def add_dashboard(app: Flask, path: str) -> None:
    """Add the dashboard to an app at /billhook, for the users of the file. Raises ConfigError."""
    users = read_password_file(path)
    if not app.secret_key:
        # scrypt is slow, so a weak password cannot be found from the key that signs the forms.
        digests = b"".join(user.digest for user in users)
        app.secret_key = hashlib.scrypt(digests, salt=b"billhook dashboard", n=2**14, r=8, p=1)
    sign_in = _SignIn(users)

    @app.get(_LOG_OUT)
    def billhook_log_out() -> Response:
        # A browser that is refused with the password it has does not send that again.
        return Response(
            "You are logged out.\n", 401, {"WWW-Authenticate": str(_challenge())}, "text/plain; charset=utf-8"
        )

    Dashboard(
        lambda: sign_in.user().name,
        lambda: sign_in.user().may_act,
        log_out_url=lambda: request.script_root + _LOG_OUT,
    ).init_app(app)


def _challenge() -> WWWAuthenticate:
    return WWWAuthenticate("basic", {"realm": "billhook dashboard", "charset": "UTF-8"})


def read_password_file(path: str) -> tuple[DashboardUser, ...]:
    """Return the users in a file: a line USER:PASSWORD each, or `read-only USER:PASSWORD` for viewers.

    Blank lines and those that begin with # are skipped. Raises ConfigError; no password is in its text.
    """
    users = tuple(_parse(path, read_secret_file(OPTION, path).splitlines()))
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
        kinds = all(any(map(kind, password)) for kind in (str.islower, str.isupper, str.isdigit))
        is_mixed = kinds and len(set(password)) >= _FEWEST_DIFFERENT
        may_be_guessed = len(password) < UNGUESSABLE_CHARACTERS or not is_mixed
        yield DashboardUser(name, _digest(password), not line.startswith(_READ_ONLY), may_be_guessed)


class _SignIn:
    """Finds the user of a request; refusals are logged once a second, with their number."""

    def __init__(
        self, users: tuple[DashboardUser, ...], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._users = users
        self._monotonic = monotonic
        self._log = LimitedLog(logger, monotonic=monotonic)
        guessable = sum(user.may_be_guessed for user in users)
        # More than one client's, so that one keeps no user out.
        self._most_wrong = max(2 * WRONG_TRIES, MAX_WRONG_TRIES // max(1, guessable))
        self._wrong = {_digest(user.name): deque[tuple[float, str]](maxlen=MAX_WRONG_TRIES) for user in users}
        """When wrong passwords of each user came, and from which client."""
        self._of_no_user: deque[tuple[float, str]] = deque(maxlen=MAX_WRONG_TRIES)
        """The same of other names, so that the time does not tell them from users."""

    def user(self) -> DashboardUser:
        """Return the user of the current request. Raises Unauthorized, so that the browser asks for one."""
        sent = request.authorization
        if sent is not None and sent.type == "basic":
            found = self._find(sent.username or "", sent.password or "")
            if found is not None and not found.may_be_guessed:
                return found
            now, client = self._monotonic(), _client(request.remote_addr or "")
            wrong = self._wrong.get(_digest(sent.username or ""), self._of_no_user)
            recent = [each for at, each in tuple(wrong) if now - at < WRONG_TRIES_SECONDS]
            if recent.count(client) < WRONG_TRIES and len(recent) < self._most_wrong:
                if found is not None:
                    return found
                wrong.append((now, client))
            text = "sign-in to the dashboard refused: no such user and password"
            self._log.log("sign-in", logging.WARNING, text, source="dashboard", cause="sign-in")
        raise Unauthorized("Sign in to see the dashboard.", www_authenticate=_challenge())

    def _find(self, name: str, password: str) -> DashboardUser | None:
        digest, encoded = _digest(password), name.encode()
        # Compare every user, so that the time reveals neither names nor passwords.
        found = [
            user
            for user in self._users
            if hmac.compare_digest(user.digest, digest) & hmac.compare_digest(user.name.encode(), encoded)
        ]
        return found[0] if found else None


def _client(address: str) -> str:
    """Return what names a client: its IPv4 address, or the first half of its IPv6 address.

    A client chooses the other half, so each try could come from a new address.
    """
    try:
        parsed = IPv6Address(address)
    except ValueError:
        return address
    return str(parsed.ipv4_mapped or parsed.packed[:8].hex())


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest()
