"""The service itself, running locally: the sole place where its parts are put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from limits import parse as parse_limit

from billhook.clock import Clock, SystemClock
from billhook.errors import ConfigError, Refusal
from billhook.resources import ErrorBody
from billhook.sandbox import access
from billhook.sandbox.billing import agenda
from billhook.sandbox.billing.steps import STEPS
from billhook.sandbox.options import SandboxOptions
from billhook.sandbox.sandbox_clock import SandboxClock
from billhook.sandbox.sending import signing_secrets
from billhook.sandbox.sending.key_material import is_public
from billhook.sandbox.sending.sender import Sender
from billhook.sandbox.storage.database import Database
from billhook.sandbox.timekeeper import Timekeeper
from billhook.sandbox.transaction import Transaction
from billhook.sandbox.web.app import create_app
from billhook.sandbox.web.gate import Gate
from billhook.sandbox.web.groups import GROUPS
from billhook.wire import strict_json

if TYPE_CHECKING:
    from flask import Flask
    from flask.testing import FlaskClient

__all__ = ["Sandbox"]


class Sandbox:
    """A usage-billing service of your own, for development and tests.

    `client_id`, `api_token` and `signing_secret` are what its users need; `api_token` is None when the
    database had one already, for it is told once only.
    """

    def __init__(self, options: SandboxOptions | None = None, *, clock: Clock | None = None) -> None:
        """Open the database and be ready to answer; ConfigError for options that cannot be used."""
        self.options = options or SandboxOptions()
        self.clock = SandboxClock(clock or SystemClock())
        try:
            limit = parse_limit(self.options.rate_limit)
        except ValueError:
            raise ConfigError(
                f"the rate limit {self.options.rate_limit!r} is not understood: say it as 1000/second"
            ) from None
        self.sender = Sender(self)
        self.timekeeper = Timekeeper(self, STEPS)
        self.database = Database(self.options.database_url)
        try:
            self._begin()
        except BaseException:
            self.database.close()
            raise
        self.client_id = self.options.client_id
        self._gate = Gate(self.client_id, self.jwt_key, limit)

    def _begin(self) -> None:
        with self.transaction(writes=False) as tx:
            self.timekeeper.restore(tx)
        with self.transaction(writes=True) as tx:
            agenda.begin(tx)
            self.jwt_key = access.jwt_key(tx)
            signing_secrets.begin(tx)
            self.api_token = self.options.api_token
            if self.api_token is not None or not access.has_active(tx):
                self.api_token = access.rotate(tx, self.options.api_token)

    @property
    def signing_secret(self) -> str | Mapping[str, str]:
        """What receivers verify with: the newest secret, or the public key of a pair; {key id: key} where
        deliveries name it."""
        with self.transaction(writes=False) as tx:
            return signing_secrets.told(tx)

    @property
    def has_public_key(self) -> bool:
        """Is `signing_secret` the public key of a pair, which nobody can sign with?"""
        return is_public(self.options.scheme, self.signing_secret)

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Transaction]:
        """One request or step: committed at the end, then what it raised is sent."""
        with self.database.writing() if writes else self.database.reading() as connection:
            tx = Transaction(connection, self.clock.now(), self.clock.real.now(), self.options)
            yield tx
        if tx.raised:
            self.sender.wake()
        if tx.scheduled:
            self.timekeeper.wake()

    def app(self) -> Flask:
        """Its HTTP interface, as a WSGI app."""
        return create_app(self, self._gate, GROUPS)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Send a request with good credentials, and without a socket: the decoded answer. Raises Refusal.

        For what the service is to do of itself: `call("POST", "/_sandbox/clock", {"advance": "P40D"})`.
        """
        token, _ = access.access_token(self.client_id, self.jwt_key, self.clock.now())
        headers = {"x-api-key": self.client_id, "Authorization": f"Bearer {token}"}
        raw = None if body is None else strict_json.dumps(body)
        kind = None if body is None else "application/json"
        answer = self._caller.open(path, method=method, data=raw, content_type=kind, headers=headers)
        if answer.status_code != 200:
            told = ErrorBody.from_json(answer.data)
            raise Refusal(answer.status_code, told.code, told.message, answer.data)
        return strict_json.loads(answer.data)

    @cached_property
    def _caller(self) -> FlaskClient:
        return self.app().test_client()

    def new_api_token(self) -> str:
        """Another API token; the one before it ends. Source: spec, "Authentication", rule 3."""
        with self.transaction(writes=True) as tx:
            self.api_token = access.rotate(tx)
        return self.api_token

    def start(self) -> None:
        """Begin to send what is raised, and to follow the clock."""
        self.sender.start()
        self.timekeeper.start()

    def close(self) -> None:
        """Stop sending, and close the database."""
        self.timekeeper.stop()
        self.sender.stop()
        self.database.close()
