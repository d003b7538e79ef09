"""The celery engine: handlers run in the workers of the user's own Celery app.

A message carries a delivery's id and nothing else: the row is the truth, retries are due in the database,
and what a message forgot the sweep finds. Celery is imported when this engine is chosen, not before.
"""

from __future__ import annotations

import importlib
import os
import secrets
import socket
from collections.abc import Mapping
from typing import Any

from billhook.engines.courier import Courier
from billhook.engines.cycle import Cycle
from billhook.engines.doorbell import Doorbell
from billhook.engines.errand import Errands
from billhook.engines.porter import TASK, Porter
from billhook.engines.registration import Registration
from billhook.engines.sweep import Sweep
from billhook.engines.upkeep import Upkeep
from billhook.errors import ConfigError, MissingExtra
from billhook.inbox import Inbox

__all__ = ["CeleryEngine", "find_celery"]

WEB_PATIENCE_SECONDS = 5.0
"""The sweep of a web process leaves so much time to those of the workers."""
PICKLE = "application/x-python-serialize"
_SERIALIZERS = ("accept_content", "result_accept_content", "task_serializer", "result_serializer")


class CeleryEngine:
    """Both sides of it: the courier in the web processes, the task and the sweep in the workers."""

    def __init__(
        self,
        inbox: Inbox,
        cycle: Cycle,
        celery: Any,
        *,
        lease_seconds: float,
        retention_days: float = 30.0,
        key_days: float | None = None,
    ) -> None:
        """`celery` is the user's app; nothing in it is changed before `bind`. Raises ConfigError."""
        self.celery = celery
        self.place = inbox.database.place
        self._inbox = inbox
        self._cycle = cycle
        self._clock = cycle.clock
        self._retention_days = retention_days
        self._key_days = key_days
        self.check()
        self._courier = Courier(lambda: Doorbell(celery, TASK), lambda: Sweep(inbox, cycle.clock))
        self._errands = Errands(inbox, cycle, lease_seconds=lease_seconds, ring=self._courier.ring)

    def check(self) -> None:
        """Raise ConfigError if the Celery app takes pickle, or is bound to another inbox."""
        _refuse_pickle(self.celery)
        porter: Porter | None = getattr(self.celery, "billhook", None)
        bound = porter.engine if porter is not None else None
        if bound is not None and bound.place != self.place:
            raise ConfigError(
                f"the Celery app handles the deliveries of the inbox {bound.place} already: give each Flask "
                "app with BILLHOOK_ENGINE=celery one of its own (tests do well with BILLHOOK_ENGINE=inline)"
            )

    def bind(self) -> None:
        """Make this the engine that the Celery app's messages are for."""
        if getattr(self.celery, "billhook", None) is None:
            self.celery.billhook = Porter(self.celery)
        self.celery.billhook.engine = self

    def start(self) -> None:
        """Begin to send, and to look for what waits, in this web process."""
        self._courier.start(WEB_PATIENCE_SECONDS)

    def wake(self, delivery_id: int) -> None:
        """A delivery was committed: have its id sent. Waits for nothing; what is not sent is swept up."""
        self._courier.start(WEB_PATIENCE_SECONDS)
        self._courier.ring(delivery_id)

    def stop(self) -> None:
        """Send what waits if that is quick, end the thread, and answer no more messages."""
        self._courier.stop()
        porter: Porter | None = getattr(self.celery, "billhook", None)
        if porter is not None and porter.engine is self:
            porter.engine = None

    def handle(self, delivery_id: int) -> None:
        """Call what is due of one delivery, in a worker. Raises InboxUnavailable."""
        self._errands.run(delivery_id)

    def sweep(self) -> None:
        """Look for what waits, in a worker's main process: what is due is rung for when it is.

        And let go of old deliveries, and tell that somebody works, as billhook's own workers do.
        """
        owner = f"celery:{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        upkeep = Upkeep(
            self._inbox,
            retention_days=self._retention_days,
            key_days=self._key_days,
            registration=Registration(self._inbox, owner, "celery", self._cycle.count_handlers),
        )
        self._courier.start(0.0, lambda: upkeep.step(self._clock.now()), upkeep.end)

    def halt(self) -> None:
        """Ring no more; takes no lock."""
        self._courier.halt()

    def rest(self) -> None:
        """Ring no more, and wait a little until what the thread does at its end is done."""
        self._courier.stop()


def find_celery(extensions: Mapping[str, Any], path: str | None) -> Any:
    """The user's Celery app: the one that `path`, BILLHOOK_CELERY_APP, names, or extensions["celery"].

    Raises ConfigError, MissingExtra.
    """
    try:
        from celery import Celery
    except ImportError:
        raise MissingExtra("BILLHOOK_ENGINE=celery", "celery") from None
    if path is not None:
        name, found = f"BILLHOOK_CELERY_APP {path!r}", _import(path)
    elif "celery" in extensions:
        name, found = 'app.extensions["celery"]', extensions["celery"]
    else:
        raise ConfigError(
            "BILLHOOK_ENGINE is celery, and there is no Celery app: put yours into "
            'app.extensions["celery"] before Billhook.init_app, or name it in '
            "BILLHOOK_CELERY_APP, as myshop.tasks:celery"
        )
    if not isinstance(found, Celery):
        raise ConfigError(f"{name} is no Celery app but a {type(found).__name__}")
    return found


def _import(path: str) -> Any:
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise ConfigError(f"BILLHOOK_CELERY_APP is {path!r}: write MODULE:NAME, as myshop.tasks:celery")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(f"BILLHOOK_CELERY_APP {path!r}: there is no module {module_name!r} here") from None
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise ConfigError(
            f"BILLHOOK_CELERY_APP {path!r}: there is no {attribute!r} in that module, or not yet: a module "
            "that makes the Flask app cannot hold its Celery app too"
        ) from None


def _refuse_pickle(celery: Any) -> None:
    from celery import Celery
    from kombu.serialization import registry

    # Reading an app's conf tells on_after_configure, and whoever connects to that later would wait in vain.
    probe = celery
    if not celery.configured:
        own = celery.__reduce_keys__()  # what Celery itself makes a copy by
        more = {"changes": dict(own["changes"]), "fixups": (), "set_as_current": False}
        probe = Celery(**{**own, **more})
    settings = {name: probe.conf[name] for name in _SERIALIZERS}
    if probe is not celery:
        probe.close()
    for name, value in settings.items():
        names = [value] if isinstance(value, str) else value or ()
        anything = name == "accept_content" and value is None  # whatever kombu's own switch says
        if anything or PICKLE in {registry.name_to_type.get(one, one) for one in names}:
            raise ConfigError(
                f"the Celery app's {name} is {value!r}: with pickle, whoever can write to the broker runs "
                "code in the workers, so billhook does not work beside it; set it to json"
            )
