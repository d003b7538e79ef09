"""Findings about the handlers of a set-up, and about the engine that runs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from billhook.doctor.finding import Finding
from billhook.doctor.setup import Setup

_ENGINES = {
    "thread": "thread: handlers run in threads of the app's own processes",
    "worker": "worker: handlers run in `billhook worker`; make sure that one is running",
    "celery": "celery: handlers run in Celery's workers; make sure that one is running",
    "inline": "inline: handlers run within the request: for development and tests only",
}
_STANDALONE = (
    "worker: `billhook serve` starts one, and handlers run in it; under a gunicorn of your own they run in "
    "threads of its processes"
)


def about_handlers(setup: Setup) -> Iterator[Finding]:
    """Ask whether a handler is registered, here or in a worker that runs."""
    if number := setup.handlers.count():
        yield Finding("ok", "handlers", f"{number} registered")
    elif setup.workers:
        yield Finding(
            "note", "handlers-not-named",
            f"handlers were not examined: a worker that runs has {setup.workers[0].handlers} of them",
            "this command was given none",
            "name the modules or files, as in `billhook doctor FILE` and `billhook check FILE`",
        )  # fmt: skip
    else:
        files = setup.settings.handlers
        where = f" in {', '.join(files)}" if files else ""
        yield Finding(
            "warning", "no-handlers",
            f"no handler is registered{where}" if files or setup.own_app else
            "no handler was examined: no file was named",
            "a receiver or worker that has none marks deliveries as done, and nothing happens",
            "register one there: @handlers.on(…)" if files else
            "name your modules or files as arguments, or in BILLHOOK_HANDLERS; or Billhook(handlers=[…])",
        )  # fmt: skip


def about_time_outs(setup: Setup) -> Iterator[Finding]:
    """Name the handlers without a time-out."""
    unlimited = sorted(each.name for each in setup.handlers.every() if each.timeout_seconds is None)
    if unlimited:
        yield Finding(
            "warning", "handler-without-timeout", f"{_listed(unlimited)} without timeout_seconds",
            "a call that never returns keeps one of the worker's threads for ever",
            "@handlers.on(…, timeout_seconds=30), and time-outs for what the handler calls",
        )  # fmt: skip


def about_types(setup: Setup) -> Iterator[Finding]:
    """Name the types that arrived and have no handler."""
    arrived = Counter(each.event_type for each in setup.sample if each.event_type)
    lost = [f"{name} ({count})" for name, count in arrived.most_common() if not setup.handlers.names(name)]
    if lost and setup.handlers.count():
        yield Finding(
            "warning", "type-unhandled", f"deliveries arrived of types without a handler: {_listed(lost)}",
            "they are stored and marked as done, and nothing happens",
            "register a handler, or unsubscribe from the type; `billhook handlers` lists them all",
        )  # fmt: skip


def about_engine(setup: Setup) -> Iterator[Finding]:
    """Say which engine runs the handlers."""
    engine = setup.workers[0].engine if setup.workers else setup.settings.engine
    yield Finding(
        "ok", "engine", _STANDALONE if engine == "thread" and not setup.own_app else _ENGINES[engine]
    )


def _listed(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
