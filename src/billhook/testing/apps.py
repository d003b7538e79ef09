"""Apps under test: their options, their clock, and what was refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flask import Flask

from billhook import signals
from billhook.clock import FrozenClock
from billhook.dispatch import Handlers
from billhook.engines import ExternalEngine, InlineEngine
from billhook.errors import ConfigError
from billhook.extension import Billhook, get_state
from billhook.signing.source import Source
from billhook.state import BillhookState

__all__ = ["Preparation", "make_app", "options", "preparation", "prepare"]

SECRET = "whsec_dGVzdHMgb2YgYmlsbGhvb2ssIG5vdCBhIHNlY3JldA=="  # noqa: S105 - it spells what it is
_EXTENSION = "billhook_testing"


@dataclass(eq=False)
class Preparation:
    """What the functions of this package know of an app: in `app.extensions`."""

    state: BillhookState
    clock: FrozenClock
    refusals: list[str] = field(default_factory=list)

    def note_refusal(self, sender: object, *, cause: str, **facts: object) -> None:
        """Observe a delivery that was not taken."""
        self.refusals.append(cause)


def options(folder: Path | str) -> dict[str, Any]:
    """Return the options of an app under test, to be set before its billhook is: an inbox in `folder`.

    >>> app.config.update(options(tmp_path))  # doctest: +SKIP
    """
    return {
        "BILLHOOK_ENGINE": "worker",  # which no process runs: settle() calls the handlers
        "BILLHOOK_INBOX_URL": f"sqlite:///{Path(folder).absolute() / 'billhook-test.db'}",
        "BILLHOOK_SECRETS": [SECRET],
    }


def make_app(folder: Path | str, *handlers: Handlers, sources: Iterable[Source] = (), **config: Any) -> Flask:
    """Return a new Flask app that has these handlers, prepared; BILLHOOK_… options may be given by name."""
    app = Flask("billhook_testing", instance_path=str(Path(folder).absolute()))
    app.config.update({**options(folder), **config})
    Billhook(handlers=handlers, sources=sources).init_app(app)
    prepare(app)
    return app


def prepare(app: Flask) -> FrozenClock:
    """Give an app the clock of its test, which stands at the present second, and return it.

    A second time returns the same clock. Raises ConfigError for an app whose engine runs by itself.
    """
    known = app.extensions.get(_EXTENSION)
    if known is None:
        state = get_state(app)
        if not isinstance(state.engine, ExternalEngine | InlineEngine):
            raise ConfigError(
                f"BILLHOOK_ENGINE is {state.settings.engine!r}, whose handlers run by themselves: before "
                "init_app(), set billhook.testing.options(folder) in the app's config or in the environment"
            )
        known = Preparation(state, FrozenClock(datetime.now(UTC).replace(microsecond=0)))
        state.use_clock(known.clock)
        signals.delivery_rejected.connect(known.note_refusal, sender=app)
        app.extensions[_EXTENSION] = known
    clock: FrozenClock = known.clock
    return clock


def preparation(app: Flask) -> Preparation:
    """Return what is known of an app, prepared now if it was not. Raises ConfigError."""
    prepare(app)
    found: Preparation = app.extensions[_EXTENSION]
    return found
