"""The service itself, running locally: the sole place where its parts are put together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
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

logger = logging.getLogger("billhook.sandbox")


class Sandbox:
    """A usage-billing service of your own, for development and tests.

    `client_id`, `api_token` and `signing_secret` are what its users need.
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
        self._times_taken = 0
        self.database = Database(self.options.database_url, self._on_loss)
        try:
            self._begin()
        except BaseException:
            self.database.close()
            raise
        self.client_id = self.options.client_id
        self._gate = Gate(self.client_id, self.jwt_key, limit)
        if self.options.seed == "demo":
            self._plant()

    def _begin(self) -> None:
        with self.transaction(writes=True) as tx:
            agenda.begin(tx)
            self.jwt_key = access.jwt_key(tx)
            signing_secrets.begin(tx)
            if self.options.api_token is not None:
                self.api_token = access.rotate(tx, self.options.api_token)

    def _plant(self) -> None:
        from billhook.sandbox.seeds import plant  # it is written for a sandbox that is there

        try:
            plant(self, lambda: None)
        except BaseException:
            self.database.close()
            raise

    @cached_property
    def api_token(self) -> str | None:
        """What POST /login takes: made when it is first asked for. None if the database had one already."""
        with self.telling_api_token() as token:
            return token  # who asks is who is told

    @contextmanager
    def telling_api_token(self, *, new: bool = False) -> Iterator[str | None]:
        """The API token, to be shown in the block; None if there is one already. `new` ends that one.

        It is told once, so it is kept when the block has ended: one that was not shown does not count.
        Source: spec, "Authentication", rules 2 and 3.
        """
        with self.transaction(writes=True) as tx:
            yield access.rotate(tx) if new or not access.has_active(tx) else None

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
            if writes and self._times_taken != self.database.times_taken:
                self.timekeeper.restore(connection)  # another sandbox may have been on it meanwhile
                self._times_taken = self.database.times_taken
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

    def is_served_at(self, base_url: str) -> None:
        """Let links lead here, unless the options say where users reach it."""
        if self.options.base_url is None:
            self.options = replace(self.options, base_url=base_url)

    def start(self) -> None:
        """Begin to send what is raised, and to follow the clock."""
        self.sender.start()
        self.timekeeper.start()

    def close(self) -> None:
        """Stop sending, and close the database."""
        self._stop()
        self.database.close()

    def _stop(self) -> None:
        self.timekeeper.stop()
        self.sender.stop()

    def _on_loss(self) -> None:
        logger.error("another sandbox has taken the database of this one: it answers 503 and sends no more")
        # In a thread of its own: one of those that are to end may be the one that is here.
        threading.Thread(target=self._stop, name="sandbox-end", daemon=True).start()
