"""The sandbox as a whole: the only module that puts its parts together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from limits import RateLimitItem
from limits import parse as parse_limit
from werkzeug.serving import WSGIRequestHandler, make_server

from billhook.clock import Clock, SystemClock
from billhook.errors import ConfigError, SandboxError
from billhook.fields import strict_json
from billhook.resources import ErrorBody
from billhook.sandbox import api, scheduled_jobs, tokens
from billhook.sandbox.app import Authenticator, create_app
from billhook.sandbox.billing import contract_lifecycle, month_end
from billhook.sandbox.billing.credits import credit_grants
from billhook.sandbox.billing.invoicing import invoice_lifecycle
from billhook.sandbox.clock import SandboxClock
from billhook.sandbox.control import customers, deliveries, invoices, service, subscriptions
from billhook.sandbox.operations import Services, groups_of
from billhook.sandbox.options import SandboxOptions
from billhook.sandbox.pages import PAGES_PREFIX, with_pages
from billhook.sandbox.pages.context import Site
from billhook.sandbox.scenario import seed_demo_data
from billhook.sandbox.scheduled_jobs import Scheduler
from billhook.sandbox.storage.database import Service, Transaction
from billhook.sandbox.webhooks import signing_secrets
from billhook.sandbox.webhooks.sender import Sender

if TYPE_CHECKING:
    from flask import Flask
    from flask.testing import FlaskClient

GROUPS = groups_of(api, customers, invoices, service, deliveries, subscriptions)
"""All operations, in the order of the OpenAPI document."""

JOB_HANDLERS: Mapping[str, Callable[[Transaction, str], None]] = {
    "customer_without_contract": contract_lifecycle.handle_missing_contract,
    "contract_start": contract_lifecycle.handle_contract_start,
    "cycle_end": contract_lifecycle.handle_cycle_end,
    "renewal_notice": contract_lifecycle.handle_renewal_notice,
    "contract_end": contract_lifecycle.handle_contract_end,
    "invoice_approval": invoice_lifecycle.handle_approval_due,
    "invoice_due": invoice_lifecycle.handle_invoice_due,
    "credit_grant": credit_grants.handle_scheduled_grant,
    "credit_expiry": credit_grants.expire_lot,
    "month_end": month_end.handle_month_end,
}
"""What handles each kind of scheduled job: `tx.now` is its due time, the text is the id of its subject."""

logger = logging.getLogger("billhook.sandbox")


class Sandbox:
    """A usage-billing service of your own, for development and tests.

    Its clients need `client_id`, `api_token` and, to verify webhooks, `signing_secret`. In a test:
    `with Sandbox(options).run() as url:`.
    """

    def __init__(self, options: SandboxOptions | None = None, *, clock: Clock | None = None) -> None:
        """Open the database; ConfigError for options that cannot be used."""
        options = options or SandboxOptions()
        # Before the database is opened: options that cannot be used must leave no file behind.
        rate_limit = _check(options)
        self.client_id = options.client_id
        self.service = Service(options, SandboxClock(clock or SystemClock()), self._wake)
        self.sender = Sender(self.service)
        self.scheduler = Scheduler(self.service, JOB_HANDLERS)
        try:
            self.scheduler.restore()
            with self.service.transaction(writes=True) as tx:
                scheduled_jobs.schedule_first_month_end(tx)
                self.jwt_key = tokens.jwt_key(tx)
                signing_secrets.ensure_secret(tx)
                if options.api_token is not None:
                    self.api_token = tokens.rotate(tx, options.api_token)
            self._authenticator = Authenticator(self.client_id, self.jwt_key, rate_limit)
            if options.seed == "demo":
                seed_demo_data(self.call, self.clock.now())
        except BaseException:
            # The lock would otherwise last as long as the process.
            self.service.close()
            raise

    @property
    def options(self) -> SandboxOptions:
        """The options in force, with the base URL once it is known."""
        return self.service.options

    @property
    def clock(self) -> SandboxClock:
        """The service's clock."""
        return self.service.clock

    @cached_property
    def api_token(self) -> str | None:
        """The API token for POST /login, created on first access; None if the database had one already."""
        # The database has only the digest of a token, so an existing one cannot be shown.
        with self.issue_api_token() as token:
            return token

    @contextmanager
    def issue_api_token(self, *, new: bool = False) -> Iterator[str | None]:
        """Give an API token, to be shown in the block; None if there is one already. `new` replaces that one.

        A token is shown once only, so it is stored at the end of the block: if showing it fails, the old one
        stays valid. Source: spec, "Authentication", rules 2 and 3.
        """
        with self.service.transaction(writes=True) as tx:
            yield tokens.rotate(tx) if new or tokens.active_mark(tx) is None else None

    def login_address(self, url: str) -> str:
        """Return the address that logs a browser in to the pages at `url`, once; only the newest does."""
        with self.service.transaction(writes=True) as tx:
            return f"{url}{PAGES_PREFIX}/login?token={tokens.issue_login_token(tx)}"

    @property
    def signing_secret(self) -> str | Mapping[str, str]:
        """The newest secret, or the public key of a pair; {key id: key} where deliveries name the key."""
        with self.service.transaction(writes=False) as tx:
            return signing_secrets.verification_secret(tx)

    @property
    def has_public_key(self) -> bool:
        """True if `signing_secret` is the public key of a pair."""
        return signing_secrets.is_public(self.options.scheme, self.signing_secret)

    def app(self) -> Flask:
        """Return the HTTP interface, as a WSGI app."""
        services = Services(
            issue_access_token=partial(tokens.access_token, self.client_id, self.jwt_key),
            move_clock=self.scheduler.move,
            flush=self.sender.flush,
            api_token_changed=partial(setattr, self, "api_token"),
        )
        app = create_app(self.service, services, self._authenticator, GROUPS)
        # Around `wsgi_app`, so that `app` stays a Flask app with its test client.
        site = partial(Site, self.service, services, GROUPS, self._authenticator)
        paged = with_pages(app.wsgi_app, site, self.jwt_key)
        app.wsgi_app = paged  # type: ignore[assignment, method-assign]
        return app

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Send a request with valid credentials, without a socket; return the decoded body.

        Raises SandboxError. For example `call("POST", "/_sandbox/clock", {"advance": "P40D"})`.
        """
        # A new token for each call: moving the clock expires one that was kept.
        token, _ = tokens.access_token(self.client_id, self.jwt_key, self.clock.now())
        headers = {"x-api-key": self.client_id, "Authorization": f"Bearer {token}"}
        raw = None if body is None else strict_json.dumps(body)
        content_type = None if body is None else "application/json"
        response = self._test_client.open(
            path, method=method, data=raw, content_type=content_type, headers=headers
        )
        if response.status_code != 200:
            error = ErrorBody.from_json(response.data)
            raise SandboxError(response.status_code, error.code, error.message, response.data)
        return strict_json.loads(response.data)

    @cached_property
    def _test_client(self) -> FlaskClient:
        return self.app().test_client()

    @contextmanager
    def run(self, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
        """Serve from a thread of this process until the end of the block, then close; gives the base URL.

        Port 0 takes a free one. `billhook sandbox` serves so from a process of its own.
        """
        server = make_server(host, port, self.app(), threaded=True, request_handler=_QuietRequestHandler)
        url = f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}"
        self.set_base_url(url)
        # How long the end of the block may wait for the server thread.
        poll_seconds = 0.01
        thread = threading.Thread(
            target=server.serve_forever, args=(poll_seconds,), name="sandbox-server", daemon=True
        )
        # The server before the sender: a link in the first webhook must open.
        thread.start()
        self.start()
        try:
            yield url
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
            self.close()

    def set_base_url(self, base_url: str) -> None:
        """Let links in webhooks begin with `base_url`, unless the options name another."""
        if self.options.base_url is None:
            self.service.options = replace(self.options, base_url=base_url)

    def start(self) -> None:
        """Start to send deliveries and to run scheduled jobs."""
        self.sender.start()
        self.scheduler.start()

    def close(self) -> None:
        """Stop scheduling and sending, and close the database."""
        # The scheduler first: its jobs raise events that the sender could still send.
        self.scheduler.stop()
        self.sender.stop()
        self.service.close()

    def _wake(self, tx: Transaction) -> None:
        if tx.enqueued:
            self.sender.wake()
        if tx.scheduled:
            self.scheduler.wake()


class _QuietRequestHandler(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing: a test's output is no place for an access log."""


def _check(options: SandboxOptions) -> RateLimitItem:
    """Return the rate limit; ConfigError for options that cannot be used, before a database is created."""
    try:
        rate_limit = parse_limit(options.rate_limit)
    except ValueError:
        raise ConfigError(
            f"the rate limit {options.rate_limit!r} cannot be read: write it as 1000/second"
        ) from None
    if options.secrets:
        signing_secrets.check_secrets(options.scheme, options.secrets)
    if not options.delivery_timeout_seconds > 0 or not all(wait >= 0 for wait in options.retry_seconds):
        raise ConfigError("delivery_timeout_seconds must be over 0, and no retry_seconds below 0")
    if options.keep_events < 1:
        raise ConfigError("keep_events must be at least 1")
    return rate_limit
