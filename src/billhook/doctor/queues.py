"""Findings about the broker of a Celery app, and the queues that its workers consume."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from billhook.basics.engine_kinds import CELERY
from billhook.basics.printable import first_line, printable
from billhook.doctor.finding import Finding
from billhook.errors import InboxError
from billhook.extension import get_state

if TYPE_CHECKING:
    from billhook.doctor.examined import Setup


def about_queues(setup: Setup) -> Iterator[Finding]:
    """Ask the Celery workers whether one consumes the queue that billhook's messages are sent to."""
    # While the condition holds, it says so.
    if setup.settings.engine != CELERY.name or setup.judgement.holds("no-consumer"):
        return
    from billhook.engines.celery.broker import CeleryBroker
    from billhook.engines.celery.consumers import ask_workers
    from billhook.engines.messages.broker import TASK

    broker = CeleryBroker(_celery_app(setup))
    try:
        queue = broker.queue_name()
        answers = ask_workers(broker, setup.inbox, setup.inbox_now)
    except InboxError:
        raise
    except Exception as error:  # noqa: BLE001 - brokers and their drivers raise anything
        text = printable(first_line(f"{type(error).__name__}: {error}"))
        yield Finding(
            "warning", "celery-broker", f"the broker of the Celery app cannot be asked: {text}",
            "without it no message reaches a worker: deliveries are stored, and wait",
            "make it reachable, from here and from the workers",
        )  # fmt: skip
        return
    if not answers.queues:
        if not setup.judgement.holds("no-worker"):
            yield Finding(
                "note", "celery-silent", "no Celery worker says which queues it consumes",
                "so it is not known whether one gets the messages; a worker of the pool solo answers between "
                "two tasks, and one with worker_enable_remote_control = False never does",
                "compare what workers were started with (`-Q`) with `task_routes`",
            )  # fmt: skip
    elif queue is not None and queue not in answers.consumed:
        who = "no Celery worker" if answers.complete else "none of the Celery workers that answered"
        yield Finding(
            "error" if answers.complete else "warning", "no-consumer",
            f"{who} consumes the queue {printable(queue)}, which {TASK} is routed to; they consume "
            f"{printable(', '.join(answers.consumed))}",
            "deliveries are answered 200, and no handler is called",
            f"start a worker with `-Q {printable(queue)}`, or change `task_routes`",
        )  # fmt: skip


def _celery_app(setup: Setup) -> Any:
    """Return the Celery app. Raises ConfigError, MissingExtra."""
    from billhook.engines.celery import CeleryEngine, find_celery

    if setup.app is not None:
        engine = get_state(setup.app).engine
        if isinstance(engine, CeleryEngine):
            return engine.celery
    return find_celery({}, setup.settings.celery_app)
