"""The app whose Celery workers tests/integration/test_engine_celery.py starts; SHOP says how, in JSON.

What its handlers do is written down in a file, a line each: name, key, attempt and process.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery import Celery
from flask import Flask

from billhook import Billhook, Delivery, Handlers, signals
from billhook.engines.celery import consumers
from billhook.engines.messages import sweeper
from billhook.events import ContractCreated, CustomerCreated, Event, InvoiceApproved, PaymentFailed, PingTest
from support import deadly_handlers
from support.signing import SECRET


def create_app(shop: dict[str, Any]) -> Flask:
    """The Flask app, with its Celery app where Flask's documentation puts it."""
    app = Flask("shop", instance_path=shop["folder"])
    app.config.update(
        BILLHOOK_SECRETS=[SECRET],
        BILLHOOK_ENGINE="celery",
        BILLHOOK_INBOX_URL=shop["inbox_url"],
        BILLHOOK_LEASE_SECONDS=shop.get("lease_seconds", 30),
        BILLHOOK_RETRY_SCHEDULE_SECONDS=shop.get("schedule", [0.5]),
    )
    celery = Celery("shop", broker=shop["broker"], set_as_current=False)
    celery.conf.update(
        task_default_queue=shop["queue"],
        task_routes=shop.get("routes"),
        broker_transport_options=shop.get("transport", {}),
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        worker_prefetch_multiplier=shop.get("prefetch", 4),
    )
    app.extensions["celery"] = celery
    group = deadly_handlers.handlers if shop.get("deadly") else handlers(Path(shop["folder"]) / "calls")
    Billhook(handlers=[group]).init_app(app)
    _observe(app, Path(shop["folder"]) / "observed")

    return app


def from_environment() -> Flask:
    """The app of a process of its own, of which the seconds are that are set here."""
    shop = json.loads(os.environ["SHOP"])
    sweeper.LATE_SECONDS = shop.get("late", sweeper.LATE_SECONDS)
    consumers.LOOK_SECONDS = shop.get("look", consumers.LOOK_SECONDS)
    return create_app(shop)


def _note(path: Path, *facts: object) -> None:
    """A line, whole, whoever else writes."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, (" ".join(map(str, facts)) + "\n").encode())
    os.close(descriptor)


def handlers(calls: Path) -> Handlers:
    """One event type for each thing that a handler may do to its worker."""
    group = Handlers()

    def add(
        model: type[Event], name: str, then: Callable[[Delivery], None] = lambda _: None, **options: Any
    ) -> None:
        def handle(event: Any, delivery: Delivery) -> None:
            _note(calls, name, delivery.key, delivery.attempt, os.getpid())
            then(delivery)

        group.on(model, name=name, **options)(handle)

    add(PingTest, "note")
    add(InvoiceApproved, "approve")
    add(PaymentFailed, "beside")
    add(PaymentFailed, "hangs", lambda _: time.sleep(60), timeout_seconds=0.5, retry=[])
    add(CustomerCreated, "slow", lambda _: time.sleep(2))
    add(ContractCreated, "fails-once", _fail_once)
    return group


def _fail_once(delivery: Delivery) -> None:
    if delivery.attempt == 1:
        raise ValueError("not today")


def _observe(app: Flask, observed: Path) -> None:
    def succeeded(sender: Flask, *, handler: str, delivery: Delivery) -> None:
        _note(observed, handler, delivery.key, delivery.attempt, os.getpid())

    app.extensions["shop_observer"] = succeeded  # blinker holds it weakly
    signals.handler_succeeded.connect(succeeded, sender=app)


if "SHOP" in os.environ and "SHOP_WEB" not in os.environ:  # `celery -A celery_shop:celery worker`
    celery = from_environment().extensions["celery"]
