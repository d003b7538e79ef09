"""Find the user's object for a queue, such as a Celery app: by an option, or among the Flask extensions."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from billhook.errors import ConfigError


def find_named(
    kind: type,
    what: str,
    engine: str,
    option: str,
    example: str,
    path: str | None,
    extensions: Mapping[str, Any],
) -> Any:
    """Return the object of this kind that `path`, the value of `option`, names, or the extension `engine`.

    Raises ConfigError.
    """
    if path is not None:
        name, found = f"{option} {path!r}", _import(what, option, example, path)
    elif engine in extensions:
        name, found = f'app.extensions["{engine}"]', extensions[engine]
    else:
        raise ConfigError(
            f"BILLHOOK_ENGINE is {engine}, and there is no {what}: put yours into "
            f'app.extensions["{engine}"] before Billhook.init_app, or name it in '
            f"{option}, as {example}"
        )
    if not isinstance(found, kind):
        raise ConfigError(f"{name} is no {what} but a {type(found).__name__}")
    return found


def _import(what: str, option: str, example: str, path: str) -> Any:
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise ConfigError(f"{option} is {path!r}: write MODULE:NAME, as {example}")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that the user's module imports is missing: that is another mistake, and keeps its trace.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(f"{option} {path!r}: there is no module {module_name!r} here") from None
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise ConfigError(
            f"{option} {path!r}: there is no {attribute!r} in that module, or not yet: a module "
            f"that makes the Flask app cannot hold its {what} too"
        ) from None
