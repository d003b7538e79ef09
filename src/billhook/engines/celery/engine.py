"""The Celery engine: handlers run in the workers of the user's own Celery app.

A message carries a delivery's id and nothing else: the inbox is the source of truth, retries are due there,
and a sweep finds the deliveries whose message was lost. Celery is imported when this engine is chosen.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from datetime import datetime
from importlib.util import find_spec
from typing import Any

from billhook.engines.celery.executor import DeliveryExecutor
from billhook.engines.celery.relay import Publisher, Relay
from billhook.engines.celery.sweeper import Sweeper
from billhook.engines.celery.task import TASK, CeleryHooks
from billhook.engines.dispatcher import Dispatcher
from billhook.engines.leases import process_owner
from billhook.engines.maintenance import Maintenance, WorkerRegistration
from billhook.engines.reporting import log_paused
from billhook.errors import ConfigError, MissingExtra
from billhook.inbox import Inbox

__all__ = ["CeleryEngine", "find_celery"]

WEB_DELAY_SECONDS = 5.0
"""The sweeps of web processes publish only what those of the workers have not for so long."""
PICKLE = "application/x-python-serialize"
JSON = "application/json"
_PACKAGES = {"redis": "redis", "rediss": "redis", "sentinel": "redis", "sqs": "boto3", "mongodb": "pymongo"}
"""What a broker of Celery needs beside Celery; without it each message fails with an AttributeError."""
_SERIALIZERS = ("accept_content", "result_accept_content", "task_serializer", "result_serializer")


class CeleryEngine:
    """Both sides of it: the relay in the web processes, the task and the sweeping in the workers."""

    def __init__(
        self,
        inbox: Inbox,
        dispatcher: Dispatcher,
        celery: Any,
        *,
        lease_seconds: float,
        retention_days: float = 30.0,
        key_days: float | None = None,
    ) -> None:
        """`celery` is the user's app; nothing in it is changed before `bind`. Raises ConfigError."""
        self.celery = celery
        self.display_url = inbox.database.display_url
        self._inbox = inbox
        self._dispatcher = dispatcher
        self._clock = dispatcher.clock
        self._retention_days = retention_days
        self._key_days = key_days
        self.check()
        self._relay = Relay(
            lambda: Publisher(celery, TASK),
            lambda: Sweeper(inbox, dispatcher.clock, self._release_held),
        )
        self._executor = DeliveryExecutor(
            inbox, dispatcher, lease_seconds=lease_seconds, publish=self._relay.publish
        )

    def _release_held(self) -> tuple[list[int], datetime | None]:
        return self._inbox.release_held(process_owner(), self._dispatcher.limits, self._clock.now())

    def check(self) -> None:
        """Raise ConfigError if the Celery app's settings do not fit, or it is bound to another inbox."""
        _check_settings(self.celery)
        hooks: CeleryHooks | None = getattr(self.celery, "billhook", None)
        bound = hooks.engine if hooks is not None else None
        if bound is not None and bound.display_url != self.display_url:
            raise ConfigError(
                f"the Celery app handles the deliveries of the inbox {bound.display_url} already: give each "
                "Flask app with BILLHOOK_ENGINE=celery one of its own (tests do well with "
                "BILLHOOK_ENGINE=inline)"
            )

    def bind(self) -> None:
        """Make this the engine that handles the Celery app's messages."""
        if getattr(self.celery, "billhook", None) is None:
            self.celery.billhook = CeleryHooks(self.celery)
        self.celery.billhook.engine = self

    def start(self) -> None:
        """Start the relay and its sweeping in this web process."""
        self._relay.start(WEB_DELAY_SECONDS)

    def wake(self, delivery_id: int) -> None:
        """Publish a committed delivery's id soon. Never waits: the sweeper finds what is not published."""
        # Again: this process may have been forked after `start`, and threads do not survive a fork.
        self._relay.start(WEB_DELAY_SECONDS)
        self._relay.publish(delivery_id)

    def stop(self) -> None:
        """Publish the ids that wait if that is quick, end the relay, and handle no more messages."""
        self._relay.stop()
        hooks: CeleryHooks | None = getattr(self.celery, "billhook", None)
        # Only our own: another app, as in tests, may have bound the Celery app since.
        if hooks is not None and hooks.engine is self:
            hooks.engine = None

    def execute(self, delivery_id: int) -> None:
        """Call the due handlers of one delivery, in a Celery worker. Raises InboxUnavailable."""
        self._executor.execute(delivery_id)

    def start_sweeping(self) -> None:
        """Sweep in a Celery worker's main process: a retry's message is published when it is due.

        It prunes old deliveries and registers itself as a worker too, as `billhook worker` does.
        """
        # In the main process only: its pool's children come and go, and one sweep per worker is enough.
        count_handlers = self._dispatcher.count_handlers
        maintenance = Maintenance(
            self._inbox,
            retention_days=self._retention_days,
            key_days=self._key_days,
            registration=WorkerRegistration(self._inbox, process_owner(), "celery", count_handlers),
        )
        log_paused(self._inbox, self._dispatcher.sender)
        self._relay.start(0.0, lambda: maintenance.run_if_due(self._clock.now()), maintenance.close)

    def request_stop(self) -> None:
        """Ask the relay to stop soon; takes no lock."""
        self._relay.request_stop()

    def stop_sweeping(self) -> None:
        """Stop the relay, and wait a little until it has removed this worker's registration."""
        self._relay.stop()


def find_celery(extensions: Mapping[str, Any], path: str | None) -> Any:
    """Return the Celery app that `path` (BILLHOOK_CELERY_APP) names, or that of the Flask extensions.

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
        # A module that the user's module imports is missing: that is another mistake, and keeps its trace.
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


def _check_settings(celery: Any) -> None:
    """Raise ConfigError for pickle, for workers that take no JSON, and for a broker without its package."""
    from celery import Celery
    from kombu.serialization import registry

    # On a copy: reading an app's conf sends on_after_configure, and receivers connected later would miss it.
    probe = celery
    if not celery.configured:
        own = celery.__reduce_keys__()  # what Celery itself copies an app by
        more = {"changes": dict(own["changes"]), "fixups": (), "set_as_current": False}
        probe = Celery(**{**own, **more})
    settings = {name: probe.conf[name] for name in _SERIALIZERS}
    broker = probe.conf.broker_write_url or probe.conf.broker_url
    if probe is not celery:
        probe.close()
    for name, value in settings.items():
        names = [value] if isinstance(value, str) else value or ()
        anything = name == "accept_content" and value is None  # None leaves it to kombu, which may accept all
        if anything or PICKLE in {registry.name_to_type.get(serializer, serializer) for serializer in names}:
            raise ConfigError(
                f"the Celery app's {name} is {value!r}: with pickle, anyone who can write to the broker runs "
                "code in the workers, so billhook refuses to work with it; set it to json"
            )
    accepted = settings["accept_content"]
    if JSON not in {registry.name_to_type.get(name, name) for name in accepted}:
        raise ConfigError(
            f"the Celery app's accept_content is {accepted!r}: its workers would refuse billhook's messages, "
            'which are JSON; add "json" to it'
        )
    scheme = (
        str(broker[0] if isinstance(broker, list | tuple) else broker).partition(":")[0].partition("+")[0]
    )
    package = _PACKAGES.get(scheme)
    if package is not None and find_spec(package) is None:
        raise ConfigError(
            f"the Celery app's broker is {scheme}://, and the package {package} is missing: "
            f"pip install {package}"
        )
