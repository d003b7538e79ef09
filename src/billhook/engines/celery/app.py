"""The user's Celery app: find it, and refuse one whose settings do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from billhook.basics.engine_kinds import CELERY
from billhook.engines.messages.named import find_named
from billhook.errors import ConfigError, MissingExtra

PICKLE = "application/x-python-serialize"
JSON = "application/json"
_PACKAGES = {"redis": "redis", "rediss": "redis", "sentinel": "redis", "sqs": "boto3", "mongodb": "pymongo"}
"""What a broker of Celery needs beside Celery; without it each message fails with an AttributeError."""
_SERIALIZERS = ("accept_content", "result_accept_content", "task_serializer", "result_serializer")


def find_celery(extensions: Mapping[str, Any], path: str | None) -> Any:
    """Return the Celery app that `path` (BILLHOOK_CELERY_APP) names, or that of the Flask extensions.

    Raises ConfigError, MissingExtra.
    """
    try:
        from celery import Celery
    except ImportError:
        raise MissingExtra("BILLHOOK_ENGINE=celery", "celery") from None
    example = "myshop.tasks:celery"
    return find_named(Celery, "Celery app", CELERY.name, "BILLHOOK_CELERY_APP", example, path, extensions)


def check_settings(celery: Any) -> None:
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
