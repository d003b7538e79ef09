"""The kinds of engines: what options, help, checks, conditions and commands know of each.

It is at the bottom because the options and the inbox are below the engines. A new engine is a row of
ENGINES here, and a class with this row as its `kind`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

OWN_COMMAND = "billhook worker"


class Place(Enum):
    """Which processes call handlers."""

    REQUEST = "request"
    """The request that stored the delivery: no worker is listed, and none is ever missing."""
    WEB = "web"
    """Threads of the web processes: they start by themselves with a request, and are listed as workers."""
    WORKER = "worker"
    """Processes that are started for it; one that stopped in order is expected to be started again."""


@dataclass(frozen=True, slots=True)
class EngineKind:
    """One engine. `sentence` says where handlers run, `advice` what to see to, `help` the same in a word.

    Without `help` no option names it. `code` is its class, imported when the engine is chosen.
    """

    name: str
    place: Place
    sentence: str
    advice: str = ""
    help: str = ""
    code: str = ""
    command: str = OWN_COMMAND
    """What starts a worker; {app} or {dotted.app} stand for where `extension` is found."""
    package: str = ""
    """What it needs beside ours: the extra has its name."""
    extension: str = ""
    """The key among the app's extensions of what that command is given, which the engine puts there."""

    @property
    def is_foreign(self) -> bool:
        """Whether another program starts its workers: `billhook worker` refuses to."""
        return self.command != OWN_COMMAND

    @property
    def runs_by_itself(self) -> bool:
        """Whether an app has its handlers called without a worker of ours or a request that stores."""
        return self.place is Place.WEB or self.is_foreign

    @property
    def text(self) -> str:
        """The name and the sentence, with the advice."""
        return f"{self.name}: {self.sentence}{self.advice}"

    def start_command(self, *, own_app: bool) -> str:
        """Return the command that starts a worker, for a Flask app of the user's or the standalone one."""
        app = "MODULE:NAME" if own_app else f"billhook.standalone:{self.extension}"
        return self.command.replace("{app}", app).replace("{dotted.app}", app.replace(":", "."))


THREAD = EngineKind(
    "thread",
    Place.WEB,
    "handlers run in threads of the app's own processes",
    help="of the app's process",
    code="billhook.engines.thread:ThreadEngine",
)
WORKER = EngineKind(
    "worker",
    Place.WORKER,
    "handlers run in `billhook worker`",
    "; make sure that one is running",
    help="`billhook worker`",
    code="billhook.engines.inline:Engine",
)
DRAIN = EngineKind(
    "drain",
    Place.WORKER,
    "handlers run in `billhook worker --drain`",
    "; make sure that it is started again and again",
)
"""The engine of a worker that exits when nothing is due."""
CELERY = EngineKind(
    "celery",
    Place.WORKER,
    "handlers run in Celery's workers",
    "; make sure that one is running",
    help="your Celery workers",
    code="billhook.engines.celery:CeleryEngine",
    command="celery -A {app} worker",
    package="celery",
    extension="celery",
)
RQ = EngineKind(
    "rq",
    Place.WORKER,
    "handlers run in RQ's workers",
    "; make sure that one is running",
    help="your RQ workers",
    code="billhook.engines.rq:RQEngine",
    command="rq worker --worker-class {dotted.app}",
    package="rq",
    extension="rq_worker",
)
INLINE = EngineKind(
    "inline",
    Place.REQUEST,
    "handlers run within the request",
    ": for development and tests only",
    help="tests",
    code="billhook.engines.inline:InlineEngine",
)
"""The engine of a process that handles its own deliveries in its requests: no worker, and never missed."""

ENGINES: Final[Mapping[str, EngineKind]] = {
    each.name: each for each in (THREAD, WORKER, DRAIN, CELERY, RQ, INLINE)
}
"""By the names under which workers are listed."""


def engine_options() -> dict[str, EngineKind]:
    """Return the engines that BILLHOOK_ENGINE may name, by name."""
    return {name: kind for name, kind in ENGINES.items() if kind.help}


def names_at(place: Place) -> list[str]:
    """Return the names of the engines whose handlers run there."""
    return [name for name, kind in ENGINES.items() if kind.place is place]
