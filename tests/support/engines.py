"""Handlers, deliveries and claims for tests of the engines."""

from __future__ import annotations

import threading
from datetime import timedelta

from celery import Celery
from redis import Redis
from rq import Queue
from rq.serializers import JSONSerializer

from billhook import Handlers
from billhook.basics.engine_kinds import ENGINES, Place, engine_options
from billhook.engines.celery import CeleryEngine
from billhook.engines.rq import RQEngine
from billhook.events import EVENT_TYPES, CustomerCreated, PingTest, sample
from billhook.extension import get_state
from support.apps import deliver, inbox_at
from support.inbox_view import column, incoming, rows


def handling(function, *event_types, **options):
    """Return handlers of which there is one, for a PingTest unless other types are named."""
    handlers = Handlers()
    handlers.on(*(event_types or (PingTest,)), **options)(function)
    return handlers


def noting(calls, failing=(), event_type=PingTest, **options):
    """Return handlers that note each key, and fail while the number of calls is in `failing`."""
    handlers = Handlers()

    @handlers.on(event_type, name="note", **options)
    def note(event, delivery):
        calls.append(delivery.key)
        if len(calls) in failing:
            raise ValueError("not today")

    @handlers.on(CustomerCreated, name="other")
    def other(event, delivery):
        calls.append(f"other {delivery.key}")

    return handlers


def worker_of_slow_runs(running, number, threads):
    """Return a worker beside so many deliveries, and the event that their handler waits for."""
    may_end = threading.Event()
    app = running(
        handling(lambda event: may_end.wait(60), name="h"), start_now=False, BILLHOOK_LEASE_SECONDS=300
    )
    for one in range(number):
        get_state(app).inbox.put(incoming(f"m{one}"))
    return get_state(app).worker(threads), may_end


def send(app, count, event_type="PingTest", first=1):
    """Deliver so many events."""
    for number in range(first, first + count):
        body = sample(EVENT_TYPES[event_type]).to_json()
        assert deliver(app, body, event_type, message_id=f"{event_type}-{number}").status_code == 200


def status_changed(invoice="inv_1", status="Paid", paid="1"):
    """Return the body of an InvoicePaymentStatusChanged."""
    body = '{"invoiceId":"%s","billingStatus":"%s","amountDue":0,"amountPaid":%s,"total":10}'
    return (body % (invoice, status, paid)).encode()


def runs(app, columns="handler, state, attempts"):
    return rows(inbox_at(app), f"SELECT {columns} FROM run ORDER BY delivery_id, handler")


def states(app):
    """Return the state of each delivery."""
    return column(inbox_at(app), "SELECT state FROM delivery ORDER BY id")


def inbox_of(app):
    state = get_state(app)
    return state.inbox, state.dispatcher.clock.now()


def plan(app, now):
    """Plan what was received, as a worker does that ends before it claims."""
    state = get_state(app)
    planned = state.dispatcher.plan(state.inbox.received(100))
    with state.inbox.transaction("a planner", state.dispatcher.limits) as transaction:
        transaction.plan([one.plan for one in planned], now)


def plan_and_claim(app, owner, now, *, most=10, lease_seconds=30):
    """Plan what was received and claim what is due in one transaction, as a worker does; the claims."""
    state = get_state(app)
    planned = state.dispatcher.plan(state.inbox.received(100))
    with state.inbox.transaction(owner, state.dispatcher.limits) as transaction:
        transaction.plan([one.plan for one in planned], now)
        return transaction.claim(most, now, now + timedelta(seconds=lease_seconds))


def swept(sweeper, queued=0):
    """Return what a sweep publishes, and the seconds until the next one."""
    ids = []
    pause = sweeper.sweep(lambda: queued, ids.append)
    return ids, pause


def celery_app(broker="memory://", **config):
    """Return a Celery app of a user's."""
    app = Celery("shop", broker=broker, set_as_current=False)
    app.conf.update(config)
    return app


def celery_engine(app, published=None, lease_seconds=30.0):
    """Return a Celery engine for the app's inbox; what it would publish is added to the list `published`."""
    state = get_state(app)
    engine = CeleryEngine(state.inbox, state.dispatcher, celery_app(), lease_seconds=lease_seconds)
    engine._publish_all = ([] if published is None else published).extend
    return engine


def rq_engine(app, published=None, lease_seconds=30.0):
    """Return an RQ engine for the app's inbox; what it would publish is added to the list `published`."""
    state, queue = get_state(app), Queue("shop", connection=Redis(port=1), serializer=JSONSerializer)
    engine = RQEngine(state.inbox, state.dispatcher, queue, lease_seconds=lease_seconds)
    engine._publish_all = ([] if published is None else published).extend
    return engine


FOREIGN = {"celery": celery_engine, "rq": rq_engine}
"""What makes each engine whose workers another program starts; its messages are handled by `execute`."""
EVERY_ENGINE = [*engine_options()]
"""For tests of what every engine promises."""


def foreign_engine(name, app, published=None):
    """Return an engine of FOREIGN for the app's inbox; None for one of ours."""
    if not ENGINES[name].is_foreign:
        return None
    assert name in FOREIGN, f"no test runs the engine {name}: add what makes one to FOREIGN"
    return FOREIGN[name](app, published)


def option_for(name):
    """Return BILLHOOK_ENGINE for an app whose deliveries a test has handled by that engine."""
    return name if ENGINES[name].place is not Place.WORKER else "worker"
