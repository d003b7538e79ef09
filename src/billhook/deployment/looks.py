"""Look at an app: what serves it, which paths receive, and what its own code still needs."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from billhook.doctor.examined import Setup
from billhook.doctor.probe import send_probe
from billhook.errors import BillhookError, ConfigError
from billhook.events import EVENT_TYPES
from billhook.receiver.blueprint import webhook_routes
from billhook.receiver.exemptions import find_request_checks, packages_of

if TYPE_CHECKING:
    from flask import Flask

_APPS = ("app", "application")
_FACTORIES = ("create_app", "make_app")
_HOOKS = {"on_starting", "on_reload", "when_ready", "post_worker_init"}
_EXCLUDED = 'if request.blueprint in ("billhook", "billhook_health", "billhook_metrics"): return None'
_METRICS = "app.register_blueprint(metrics_blueprint(token=…)), from billhook.metrics, for GET /metrics"
_HEALTH = 'app.register_blueprint(hooks.health_blueprint(), url_prefix="/internal"), for GET /internal/readyz'
_MOUNT = 'Billhook(handlers=[handlers]).init_app(app, url_prefix="/webhooks/billing")'


@dataclass(frozen=True)
class Look:
    """What was found out about an app."""

    paths: tuple[str, ...] = ()
    """At which deliveries are received."""
    seen: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """What the app's own code still needs."""
    handled: str = ""
    """An event type that has a handler; "" if none is known."""


def look_at(app: Flask) -> Look:
    """Look at an app that was loaded; a signed probe passes through all of its hooks, and is not stored."""
    try:
        setup = Setup.of_app(app)
    except ConfigError:
        return Look(needs=(f"the receiver: {_MOUNT}", f"if you want metrics: {_METRICS}"))
    routes = webhook_routes(app)
    seen = [f"deliveries are exempt from {check}" for check in find_request_checks(app)]
    login = _has_login(app)
    seen += ["Flask-Login"] if login else []
    needs = []
    for route in routes:
        try:
            found = [*send_probe(setup, route)]
        except BillhookError as error:
            seen.append(f"no probe was sent to {route.path}: {error}")
            continue
        needs += [f"{one.what}: {one.why}" if one.why else one.what for one in found if one.level == "error"]
    if needs or login:
        needs.append(f"first in the app's own before_request hooks, if one asks for a login: {_EXCLUDED}")
    if "billhook_health" not in app.blueprints:
        needs.append(f"if something probes the app: {_HEALTH}")
    if "billhook_metrics" not in app.blueprints:
        needs.append(f"if you want metrics: {_METRICS}")
    handled = next((name for name in EVENT_TYPES if setup.handlers.names(name)), "")
    return Look(tuple(dict.fromkeys(route.path for route in routes)), tuple(seen), tuple(needs), handled)


def _has_login(app: Flask) -> bool:
    manager = getattr(app, "login_manager", None)
    return manager is not None and "flask_login" in packages_of(manager)


def find_target(named: str, folder: Path) -> str:
    """Return what gunicorn serves of an app that `flask --app` names. Raises ConfigError if it is unclear."""
    place, _, what = named.partition(":")
    module = place.removesuffix(".py").strip("./").replace("/", ".")
    names = _names(module, folder)
    if what:
        return f"{module}:{what}" if "(" in what or names.get(what) != "factory" else f"{module}:{what}()"
    for name in _APPS:
        if name in names:
            return f"{module}:{name}"
    for name in _FACTORIES:
        if names.get(name) == "factory":
            return f"{module}:{name}()"
    raise ConfigError(f"neither app nor create_app was found in {module}: give --target MODULE:APP")


def _names(module: str, folder: Path) -> dict[str, str]:
    """Return the names at the top of a module, each with whether it is a factory."""
    loaded = getattr(sys.modules.get(module), "__file__", None)
    parts = folder.joinpath(*module.split("."))
    files = [Path(loaded)] if loaded else [parts.with_name(f"{parts.name}.py"), parts / "__init__.py"]
    names: dict[str, str] = {}
    for tree in filter(None, map(_parsed, files)):
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                names[node.name] = "factory"
            elif isinstance(node, ast.Assign):
                names |= dict.fromkeys((one.id for one in node.targets if isinstance(one, ast.Name)), "app")
            elif isinstance(node, ast.ImportFrom):
                names |= {
                    one.asname or one.name: "factory" if one.name in _FACTORIES else "app"
                    for one in node.names
                }
    return names


def _parsed(file: Path) -> ast.Module | None:
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def about_gunicorn(text: str) -> Iterator[str]:
    """Yield what a gunicorn.conf.py of the app's own needs, beyond billhook's lines around it."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        yield f"gunicorn.conf.py cannot be read: {error}"
        return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in _HOOKS:
            names = ", ".join(one.arg for one in node.args.args)
            yield (
                f"your {node.name} in gunicorn.conf.py replaces billhook's: call it there, "
                f"gunicorn_conf.{node.name}({names}) of `from billhook import gunicorn_conf`"
            )


def has_billhook(gunicorn: str) -> bool:
    """Return whether a gunicorn.conf.py has billhook's settings already."""
    return re.search(r"(?m)^from billhook\.gunicorn_conf import", gunicorn) is not None


def about_site(text: str) -> Iterator[str]:
    """Yield what a site of nginx has that deliveries or the dashboard's forms do not bear."""
    if re.search(r"(?m)^\s*proxy_set_header\s+Host\s+\$host\s*;", text):
        yield "nginx: Host $host drops the port, and then forms are refused: use $http_host"
    for word in ("auth_basic", "auth_request", "rewrite", "proxy_cache"):
        if re.search(rf"(?m)^\s*{word}\s", text):
            yield f"nginx: {word} must not apply to the deliveries' location"
