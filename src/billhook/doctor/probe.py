"""The probe of `billhook check`: a signed delivery to a Flask app over a connection, which is not stored.

It shows whether deliveries reach the receiver and the receiver's answer reaches their sender, and otherwise
what is in the way. The app is served for a moment, because a test client has no connection on which code of
the app could wait in vain for more of a body.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from billhook.doctor.examined import Setup
from billhook.doctor.finding import Finding
from billhook.errors import BillhookError
from billhook.posting import HttpPoster, HttpReply, sign
from billhook.receiver.blueprint import WebhookRoute, host_of, webhook_routes
from billhook.receiver.wsgi import PROBE, DeliveryProbe
from billhook.servers.accepting import accept_connections

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from flask import Flask

_EVENT_TYPE = "PingTest"
_BODY = b"{}"
_SECONDS = 5
"""How long an answer is waited for."""
_TOKEN = "X-Billhook-Probe"  # noqa: S105 - the name of a header
_EXCLUDE = 'exclude requests with request.blueprint == "billhook"'


def send_probe(setup: Setup, route: WebhookRoute) -> Iterator[Finding]:
    """Send a signed probe to a receiver through all of the app; it is not stored."""
    app = setup.app
    assert app is not None  # noqa: S101 - the runner has asked
    name, headers = f"POST {route.path}", _sign(setup, route)
    for scheme in ("https", "http"):
        try:
            gateway, reply = _send(app, route, scheme, {"X-Forwarded-Proto": "https", **headers})
        except OSError as error:
            yield Finding(
                "error", name, f"no probe was sent over a port of 127.0.0.1: {error.strerror}",
                remedy="send a delivery to the app where it runs, with `billhook send --to URL`",
            )  # fmt: skip
            return
        ok, text = _judge(app, route, gateway, reply, signed=bool(headers))
        if not ok and scheme == "http":  # as a proxy that ends TLS passes a delivery on
            text += "; it came over plain HTTP with X-Forwarded-Proto: https, and over https it is received"
        if not ok:
            break
    yield Finding("ok" if ok else "error", name, text)


def _sign(setup: Setup, route: WebhookRoute) -> dict[str, str]:
    """Sign the probe; return nothing if the source has only public keys: then a 401 shows the receiver."""
    secret = route.source.secret_list[0]
    if not isinstance(secret, str):
        return {}
    header = route.source.type_header
    try:
        return sign(route.source.scheme, secret, _EVENT_TYPE, _BODY, setup.now, type_header=header)
    except (BillhookError, ValueError):
        return {}


class ProbeGateway:
    """A WSGI application that passes the checker's own request on to an app, and no other.

    It puts the probe into the WSGI environ, where no header of a request can put one. The checker's requests
    have a random token, which the app does not see; the server refuses what else comes to the port.
    """

    def __init__(self, app: WSGIApplication, scheme: str, root: str) -> None:
        """`root` is the beginning of the path at which the app is mounted, as "/shop"; "" for none."""
        self.token = secrets.token_urlsafe(32)
        self.probe = DeliveryProbe()
        self.raised: Exception | None = None
        """What the app raised, rather than answer."""
        self._app = app
        self._scheme = scheme
        self._root = root

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
        """Pass on a request of the checker's own."""
        del environ["HTTP_" + _TOKEN.upper().replace("-", "_")]
        # What a server says that takes deliveries by this scheme, at this path.
        environ["wsgi.url_scheme"] = self._scheme
        environ["SERVER_NAME"] = environ["HTTP_HOST"].partition(":")[0]
        environ["SERVER_PORT"] = "443" if self._scheme == "https" else "80"
        environ["SCRIPT_NAME"] = self._root
        environ["PATH_INFO"] = environ["PATH_INFO"].removeprefix(self._root)
        environ[PROBE] = self.probe
        try:
            pieces = self._app(environ, start_response)
        except Exception as error:
            self.raised = error
            raise
        try:
            yield from pieces
        finally:
            if hasattr(pieces, "close"):
                pieces.close()


class _ProbeHandler(WSGIRequestHandler):
    """Takes the checker's requests; refuses any other before werkzeug reads its target or its body."""

    server: _ProbeServer

    def log(self, *_: Any) -> None:
        """Say nothing: the output is that of the command."""

    def parse_request(self) -> bool:
        """Parse the head of a request; return False if it is answered already."""
        if not self.raw_requestline.strip():
            self.send_error(HTTPStatus.BAD_REQUEST)  # the library would give no answer
            return False
        if not super().parse_request():
            return False
        given = self.headers.get(_TOKEN, "")
        if hmac.compare_digest(given.encode(), self.server.gateway.token.encode()):
            return True
        self.send_error(HTTPStatus.FORBIDDEN)
        return False

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request without its text; no input is answered 5xx."""
        self.request_version = self.protocol_version  # to HTTP/0.9 an answer would have no status line
        self.send_response_only(code if code < 500 else HTTPStatus.BAD_REQUEST)
        self.send_header("Connection", "close")
        self.send_header("Content-Length", "0")
        self.end_headers()


class _ProbeServer(ThreadedWSGIServer):
    def __init__(self, gateway: ProbeGateway, descriptor: int) -> None:
        self.gateway = gateway
        super().__init__("127.0.0.1", 0, gateway, _ProbeHandler, fd=descriptor)

    def log(self, *_: Any) -> None:
        """Say nothing; what the app raised is found by its gateway."""


@contextmanager
def _served(gateway: ProbeGateway) -> Iterator[tuple[int, list[OSError]]]:
    """Serve a gateway on a free port of this machine's own address. Raises OSError.

    Yield the port, and a list of the errors when no connection could be accepted.
    """
    errors: list[OSError] = []
    is_over = threading.Event()
    # Bound here: the server would print an error, and exit.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = _ProbeServer(gateway, listener.fileno())

        def accept() -> None:
            for connection in accept_connections(listener, is_over.is_set, errors.append):
                try:
                    server.process_request(connection, connection.getpeername())
                except (OSError, RuntimeError):  # its client has gone, or there is no thread for it
                    connection.close()

        # Not serve_forever, whose selector stops every greenlet of an app that patches the library late.
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1], errors
        finally:
            is_over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            server.server_close()


def _send(
    app: Flask, route: WebhookRoute, scheme: str, headers: Mapping[str, str]
) -> tuple[ProbeGateway, HttpReply]:
    """Send a probe to an app that is mounted at its APPLICATION_ROOT. Raises OSError without a free port."""
    root = "/" + app.config["APPLICATION_ROOT"].strip("/")
    path = root.rstrip("/") + "/" + route.path.removeprefix("/")
    gateway = ProbeGateway(app, scheme, root.rstrip("/"))
    reply = _post(gateway, path, {"Host": host_of(app, route), **headers})
    if root != "/" and gateway.probe.answer is None and reply.status == 404:
        # A dispatcher that is a part of the app, in its `wsgi_app`, takes the whole path.
        within = ProbeGateway(app, scheme, "")
        second = _post(within, path, {"Host": host_of(app, route), **headers})
        if within.probe.answer is not None:
            return within, second
    return gateway, reply


def _post(gateway: ProbeGateway, path: str, headers: Mapping[str, str]) -> HttpReply:
    with _served(gateway) as (port, errors):
        url = urlsplit(f"http://127.0.0.1:{port}{quote(path)}")
        with HttpPoster(url, _SECONDS) as poster:
            reply = poster.post(_BODY, {_TOKEN: gateway.token, **headers})
        if reply.status is None and errors:
            raise errors[0]
        return reply


def _judge(
    app: Flask, route: WebhookRoute, gateway: ProbeGateway, reply: HttpReply, *, signed: bool
) -> tuple[bool, str]:
    """Return whether the receiver answered as it should, and what the user is to know or to change."""
    answer = gateway.probe.answer
    if gateway.raised is not None:
        return False, f"no answer: the app raised {type(gateway.raised).__name__}: {gateway.raised}"
    # The order matters: only a request that reached the receiver says anything about the receiver.
    if answer is None:
        return False, _without_receiver(app, reply)
    after = f"{_EXCLUDE} from after_request and teardown hooks and from middleware"
    if reply.status is None:
        return False, (
            f"billhook answered {answer.status}, but its sender got no answer ({reply.body}): code of the "
            f"app that runs after billhook does not end, or reads more of the body than there is: {after}"
        )
    if reply.status != answer.status or reply.body.encode() != answer.body:
        changed = f"to {reply.status}" if reply.status != answer.status else "by another with the same status"
        return False, (
            f"billhook answered {answer.status}, but a hook or middleware of the app changed it {changed}: "
            f"{after}"
        )
    if answer.status == 200:
        return True, f"verified and answered by billhook (source {route.source.name})"
    if answer.status == 401 and not signed:
        return True, "answered by billhook; the source has only public keys, so the probe could not be signed"
    if answer.status == 400:  # the probe's body is complete
        return False, (
            "billhook answered 400: code of the app read the body before billhook and put nothing in its "
            f"place: {_EXCLUDE} from middleware, and from receivers of request_started"
        )
    return False, f"billhook answered {answer.status}: {reply.body}"


def _without_receiver(app: Flask, reply: HttpReply) -> str:
    """Return what to change where something else answered in the receiver's place, or nothing did."""
    status = reply.status
    if status is None:
        return (
            f"no answer ({reply.body}), and billhook was not reached: code of the app "
            f"that runs before it does not end: {_EXCLUDE} from before_request hooks and from middleware"
        )
    text = f"{status} came from the app, not from billhook: "
    if status in (404, 405):
        known = ", ".join(sorted({route.path for route in webhook_routes(app)}))
        return f"{text}no receiver at this path; the app has {known} (url_prefix)"
    hook = f"a before_request hook{_named_hooks(app)}"
    kind = f"{hook} or an error handler"
    if 300 <= status < 400:
        kind = f"a redirect, for example to a login page, by {hook} or middleware"
    elif status == 429:
        kind = f"a rate limit, by {hook} or middleware"
    return f"{text}{kind}: {_EXCLUDE} from it"


def _named_hooks(app: Flask) -> str:
    """Return the functions of the app that are called before each request, in brackets."""
    hooks = [
        f"{hook.__module__}.{getattr(hook, '__qualname__', type(hook).__name__)}"
        for hook in app.before_request_funcs.get(None, ())
    ]
    own = [name for name in hooks if not name.startswith("billhook.")]
    return f" ({', '.join(own)})" if own else ""
