"""pytest fixtures of billhook; see billhook.testing.

Every pytest in an environment that has billhook imports this module. So it is no part of the package, which
would be imported with it: that costs time, and is too early for a measurement of coverage.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from flask import Blueprint, Flask

    from billhook.clock import FrozenClock
    from billhook.handlers import Delivery
    from billhook.testing import RunningSandbox

APP_HELP = "the app under test: `module:create_app`, a function that returns a new one for each test"
HANDLERS_HELP = "modules with handlers, for an app that billhook makes: `billing` or `billing.py`"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two settings, one of which a suite has."""
    parser.addini("billhook_app", APP_HELP, default="")
    parser.addini("billhook_handlers", HANDLERS_HELP, type="args", default=[])


@pytest.fixture
def billhook_app(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Flask]:
    """Make the app under test on a temporary inbox, of the setting `billhook_app` or `billhook_handlers`.

    Override it to make the app yourself, with `billhook.testing.options(tmp_path)` in its config.
    """
    from billhook.settings import from_environ
    from billhook.testing import make_app, options, prepare

    chosen = request.config.getini("billhook_app")
    # A test must not depend on the shell: what is set there is of the developer's own receiver.
    flask_names = [name for name in os.environ if name.startswith("FLASK_BILLHOOK_")]
    for name in [*from_environ(os.environ), *flask_names]:
        monkeypatch.delenv(name)
    if chosen:
        wanted = options(tmp_path)
        for name, value in wanted.items():
            monkeypatch.setenv(name, ",".join(value) if isinstance(value, list) else str(value))
        with monkeypatch.context() as patch:
            _refuse_other_inboxes(patch, wanted["BILLHOOK_INBOX_URL"])
            app = _load(chosen)
        prepare(app)
    else:
        from billhook.standalone import load_handlers

        app = make_app(tmp_path, *load_handlers(request.config.getini("billhook_handlers")))
    yield app
    app.extensions["billhook"].close()


@pytest.fixture
def billhook_clock(billhook_app: Flask) -> FrozenClock:
    """Make the clock of the app under test, which stands still until it is moved."""
    from billhook.testing import prepare

    return prepare(billhook_app)


def _of_app(name: str, told: str) -> Any:
    """Return the fixture of a function of billhook.testing, for the app under test; `told` is its help."""

    def fixture(billhook_app: Flask) -> Callable[..., Any]:
        from billhook import testing

        return partial(getattr(testing, name), billhook_app)

    fixture.__doc__ = f"`{name}{told}"
    return pytest.fixture(fixture, name=name)


deliver = _of_app("deliver", "(event_or_type, signed=True, **overrides)`: sign it and post it to the app.")
settle = _of_app("settle", "(advance=None)`: run the handlers until nothing is left to do, over all retries.")
handled = _of_app("handled", "(handler)`: the events that it handled with success.")
dead = _of_app("dead", "()`: the runs that failed for good.")
refused = _of_app("refused", "()`: the causes of the deliveries that were not taken.")
pause_handler = _of_app("pause_handler", "(handler, why=None)`: it is not called any more.")
resume_handler = _of_app("resume_handler", "(handler)`: it is called again.")
paused = _of_app("paused", "()`: the names of the paused handlers, with their reasons.")


@pytest.fixture
def delivery_of() -> Callable[..., Delivery]:
    """`delivery_of(event)`: a delivery, to call a handler as a plain function."""
    from billhook import testing

    return testing.delivery_of


@pytest.fixture
def sandbox(billhook_app: Flask) -> Iterator[RunningSandbox]:
    """Run the billing service in this process, with the app subscribed to all its events."""
    from billhook.testing import running_sandbox

    with running_sandbox(billhook_app) as running:
        yield running


def _load(chosen: str) -> Flask:
    """Return a new app of the function that `module:function` names. Raises UsageError."""
    module, _, attribute = chosen.partition(":")
    try:
        create_app: Callable[[], Flask] = getattr(importlib.import_module(module), attribute)
    except (ModuleNotFoundError, AttributeError, ValueError) as error:
        raise pytest.UsageError(f"billhook_app = {chosen}: {error}; it is {APP_HELP}") from error
    # An app is callable too, by a server. One that is made at import has the inbox that was set then.
    if hasattr(create_app, "extensions"):
        raise pytest.UsageError(f"billhook_app = {chosen} is an app that is made only once; it is {APP_HELP}")
    return create_app()


def _refuse_other_inboxes(patch: pytest.MonkeyPatch, url: str) -> None:
    """Have an app whose own config names an inbox refused with UsageError, before that inbox is opened."""
    from billhook.extension import Billhook, get_settings

    mount = Billhook._mounted

    def checked(
        self: Billhook, app: Flask, url_prefix: str, *, host: str | None
    ) -> AbstractContextManager[Blueprint]:
        if get_settings(app).inbox_url != url:
            raise pytest.UsageError(
                "the app has an inbox of its own, which tests must not use: leave BILLHOOK_INBOX_URL, "
                "_SECRETS and _ENGINE to the environment, or override the fixture billhook_app with an app "
                "that has billhook.testing.options(tmp_path) in its config"
            )
        return mount(self, app, url_prefix, host=host)

    patch.setattr(Billhook, "_mounted", checked)
