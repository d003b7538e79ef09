"""Check that what billhook overrides or reads of gunicorn is as it was in the version that it is made for.

AsgiWorker's limits override methods that are not gunicorn's public interface. If their names or parameters
differed, they would not be called, and the receiver would serve without limits. gunicorn_refusals changes two
things of gunicorn's other workers; an older gunicorn serves with those alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module

from gunicorn import __version__, version_info

from billhook.errors import ConfigError, MissingExtra

OLDEST = "27.0.1"
NEWEST_TESTED = "27.0.1"
_WORKER, _PROTOCOL = "gunicorn.workers.gasgi", "gunicorn.asgi.protocol"
_EVENT_LOOP = {
    (_WORKER, "ASGIWorker"): {
        "init_process": "(self)",
        "load_wsgi": "(self)",
        "check_config": "(cfg, log)",
        "init_signals": "(self)",
        "_serve": "(self)",
        "_shutdown": "(self)",
    },
    (_PROTOCOL, "ASGIProtocol"): {
        "connection_made": "(self, transport)",
        "connection_lost": "(self, exc)",
        "data_received": "(self, data)",
        "eof_received": "(self)",
        "pause_writing": "(self)",
        "resume_writing": "(self)",
        "_handle_connection": "(self)",
        "_feed_callback_parser": "(self, data)",
        "_on_headers_complete": "(self)",
        "_on_body": "(self, chunk)",
        "_on_message_complete": "(self)",
        "_is_buffer_full": "(self)",
        "_resume_reading": "(self)",
        "_arm_keepalive_timer": "(self)",
        "_cancel_keepalive_timer": "(self)",
        "_send_response_start": "(self, status, headers, request, close=False)",
        "_send_error_response": "(self, status, message, extra_headers=())",
        "_close_transport": "(self)",
        "_check_h1c_protocol_available": "()",
    },
    (_PROTOCOL, "BodyReceiver"): {"signal_disconnect": "(self)"},
}
_THREADS = {
    ("gunicorn.workers.base", "Worker"): {"handle_error": "(self, req, client, addr, exc)"},
    ("gunicorn.http.parser", "Parser"): {"finish_body": "(self, deadline=None, max_bytes=None)"},
    ("gunicorn.http.body", "Body"): {"read": "(self, size=None)"},
    ("gunicorn", "util"): {"write_error": "(sock, status_int, reason, mesg)"},
}
"""The methods and functions that are overridden or called: of the event loop's worker, and of the others."""
_ATTRIBUTES = {
    (_WORKER, "ASGIWorker"): ("loop", "servers", "_quick_shutdown"),
    (_PROTOCOL, "ASGIProtocol"): (
        *("transport", "_awaiting_request", "_body_receiver", "_callback_parser", "_closed", "_is_ssl"),
        *("_keepalive", "_request_ready", "_uses_uwsgi", "_forwarded_trust", "_secure_names"),
    ),
    (_PROTOCOL, "BodyReceiver"): ("_complete",),
    ("gunicorn.http.body", "Body"): ("failed",),
}
"""The attributes that `__init__` sets."""


def check_gunicorn() -> None:
    """Raise ConfigError if AsgiWorker cannot run on this gunicorn: MissingExtra if it is too old."""
    if _is_older():
        feature = f"serving with gunicorn {OLDEST} or newer, where {__version__} is installed,"
        raise MissingExtra(feature, "serve")
    _compare(_EVENT_LOOP, "the limits for slow clients")


def check_threads() -> None:
    """Raise ConfigError if gunicorn_refusals does not fit this gunicorn; an older one is not judged."""
    if not _is_older():
        _compare(_THREADS, "the answers to invalid requests")


def _is_older() -> bool:
    return bool(version_info < tuple(map(int, OLDEST.split("."))))


def _compare(known: Mapping[tuple[str, str], Mapping[str, str]], promise: str) -> None:
    for (module, class_name), methods in known.items():
        one = getattr(import_module(module), class_name, None)
        changed = [name for name, signature in methods.items() if _signature(one, name) != signature]
        set_there = getattr(getattr(one, "__init__", None), "__code__", None)
        names = getattr(set_there, "co_names", ())
        changed += [name for name in _ATTRIBUTES.get((module, class_name), ()) if name not in names]
        if changed:
            raise ConfigError(
                f"gunicorn {__version__} is not known to this billhook: its {class_name}.{changed[0]} is not "
                f"as in {NEWEST_TESTED}, and {promise} would not hold; "
                f"run: pip install 'gunicorn<={NEWEST_TESTED}'"
            )


def _signature(one: object, name: str) -> str:
    try:
        return str(inspect.signature(getattr(one, name)))
    except (AttributeError, TypeError, ValueError):
        return "none"
