"""The receivers that are compared: a bare view, billhook, and the endpoint people write by hand."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flask import Flask, request

from billhook.receiver.blueprint import webhook_routes
from billhook.receiver.wsgi import TakenBody, read_body
from support.signing import SECRET


def bare() -> Flask:
    """What Flask itself costs: read the body, answer 200, keep nothing."""
    app = Flask(__name__)

    @app.post("/webhooks/billing")
    def receive() -> tuple[str, int]:
        request.get_data()
        return '{"status": "accepted"}', 200

    return app


def durable() -> Flask:
    """billhook, storing in SQLite with synchronous=FULL unless told where; see BENCH_ENGINE."""
    from noop import handlers

    from billhook import Billhook
    from billhook.engines.watch import Watch

    if os.environ.get("BENCH_WATCH") == "off":
        Watch.start = lambda *_: None
    sqlite = f"sqlite:///{Path(os.environ['BENCH_FOLDER']) / 'inbox.db'}"

    app = Flask(__name__)
    app.config.update(
        BILLHOOK_SECRETS=[SECRET],
        BILLHOOK_ENGINE=os.environ.get("BENCH_ENGINE", "worker"),
        BILLHOOK_INBOX_URL=os.environ.get("BENCH_INBOX_URL", sqlite),
    )
    Billhook(app, handlers=[handlers] if app.config["BILLHOOK_ENGINE"] == "thread" else [])
    return app


def durable_asgi() -> Any:
    """The same on an event loop, as the standalone receiver is."""
    from billhook import Billhook

    return Billhook().asgi_app(durable())


def threads_floor() -> Any:
    """The blueprint's receiver without Flask around it: the least that a thread a request costs."""
    app = durable()
    state = app.extensions["billhook"]
    (route,) = webhook_routes(app)
    receiver = state.wsgi_receiver

    def receive(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        body = read_body(environ, receiver.rules.max_body_bytes)
        answer = receiver.accept(environ, route.source, TakenBody(body, None, environ["wsgi.input"], 0.0))
        start_response(f"{answer.status} OK", [("Content-Length", str(len(answer.body)))])
        yield answer.body

    return receive


def by_hand() -> Flask:
    """Flask, standardwebhooks, pydantic, and one SQLAlchemy insert and commit per request."""
    import standardwebhooks
    from pydantic import BaseModel
    from sqlalchemy import Column, Integer, LargeBinary, MetaData, String, Table, create_engine, event, insert
    from sqlalchemy.exc import IntegrityError
    from sqlalchemy.schema import CreateTable

    class InvoiceApproved(BaseModel):
        date: str
        invoiceId: str  # noqa: N815 - as on the wire

    app = Flask(__name__)
    verifier = standardwebhooks.Webhook(SECRET)
    engine = create_engine(f"sqlite:///{Path(os.environ['BENCH_FOLDER']) / 'by_hand.db'}")

    @event.listens_for(engine, "connect")
    def durable_connection(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    table = Table(
        "webhook",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("key", String, unique=True),
        Column("event_type", String),
        Column("body", LargeBinary),
    )
    # One process after the other: of two that switch a new file to its log at once, one fails.
    with (Path(os.environ["BENCH_FOLDER"]) / "by_hand.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with engine.begin() as connection:
            connection.execute(CreateTable(table, if_not_exists=True))

    @app.post("/webhooks/billing")
    def receive() -> tuple[str, int]:
        body = request.get_data()
        try:
            verifier.verify(body, dict(request.headers))
        except standardwebhooks.WebhookVerificationError:
            return "no", 401
        InvoiceApproved.model_validate_json(body)
        try:
            with engine.begin() as connection:
                connection.execute(
                    insert(table).values(
                        key=request.headers["webhook-id"],
                        event_type=request.headers["X-Webhook-Type"],
                        body=body,
                    )
                )
        except IntegrityError:
            return "duplicate", 200
        return "accepted", 200

    return app
