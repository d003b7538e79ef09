"""What is checked of the gunicorn that is installed."""

from __future__ import annotations

from importlib import import_module

import pytest

from billhook.errors import ConfigError
from billhook.servers.gunicorn_compat import check_gunicorn, check_threads
from support.server import need_event_loop

KINDS = {"asgi": check_gunicorn, "gthread": check_threads}


@pytest.mark.parametrize(
    ("kind", "module", "changed", "to", "named"),
    [
        ("asgi", "asgi.protocol:ASGIProtocol", "_on_body", None, "ASGIProtocol._on_body"),
        (
            *("asgi", "asgi.protocol:ASGIProtocol", "data_received", lambda self, data, more: None),
            "ASGIProtocol.data_received",
        ),
        ("asgi", "asgi.protocol:BodyReceiver", "__init__", lambda self: None, "BodyReceiver._complete"),
        ("gthread", "http.body:Body", "__init__", lambda self: None, "Body.failed"),
        ("gthread", "util", "write_error", None, "util.write_error"),
        ("gthread", "workers.base:Worker", "handle_error", lambda self, one: None, "Worker.handle_error"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_gunicorn_whose_insides_changed_is_refused(monkeypatch, kind, module, changed, to, named):
    need_event_loop()
    name, _, class_name = module.partition(":")
    inside = import_module(f"gunicorn.{name}")
    one = getattr(inside, class_name) if class_name else inside
    if to is None:
        monkeypatch.delattr(one, changed)
    else:
        monkeypatch.setattr(one, changed, to)

    with pytest.raises(ConfigError, match=rf"its {named} is not as in 27\."):
        KINDS[kind]()


def test_control_the_installed_gunicorn_is_taken():
    need_event_loop()

    for check in KINDS.values():
        check()
