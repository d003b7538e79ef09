"""Answer what is no HTTP behind gunicorn's threads and greenlets; AsgiWorker does the same by itself.

gunicorn's answer quotes the request, may be a 5xx, and follows an answer that the app has given already.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from gunicorn import util
from gunicorn.http import errors

from billhook.errors import ConfigError
from billhook.servers.gunicorn_compat import check_threads

_STATUSES = {
    "LimitRequestLine": HTTPStatus.REQUEST_URI_TOO_LONG,
    "LimitRequestHeaders": HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "ExpectationFailed": HTTPStatus.EXPECTATION_FAILED,
}
"""The status by gunicorn's exception; any other is 400. gunicorn has 500 and 501 for some."""
_OF_THE_APP = ("InvalidResponseHeader", "InvalidResponseHeaderName")
"""Subclasses of what is raised for a request's header; an older gunicorn has none of them."""


def refuse_plainly(worker: Any, report: Callable[[int], None]) -> None:
    """Have a gunicorn worker answer invalid requests without their text, once; `report` gets each status.

    Call it from `post_worker_init`, so that the hooks of a configuration remain: they are called as well.
    """
    try:
        check_threads()
    except ConfigError as error:  # any other exception gunicorn would show with a stack trace
        raise SystemExit(f"Error: {error}") from None
    cfg, failed = worker.cfg, worker.handle_error
    request_begins, request_ends = cfg.pre_request, cfg.post_request

    def handle_error(req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        name = type(exc).__name__
        if not isinstance(exc, errors.ParseException | ssl.SSLError) or name in _OF_THE_APP:
            failed(req, client, addr, exc)  # of the app: a 500 without a text, and a stack trace in the log
            return
        status = _STATUSES.get(name, HTTPStatus.BAD_REQUEST)
        report(int(status))
        with suppress(Exception):  # the client may have gone
            util.write_error(client, int(status), status.phrase, "")

    def pre_request(worker: Any, req: Any) -> None:
        req.version = min(req.version, (1, 1))  # gunicorn's answer has the same version
        request_begins(worker, req)

    def post_request(worker: Any, req: Any, environ: Any, resp: Any) -> None:
        if resp is not None and resp.headers_sent:
            req.body = _RestOfBody(req.body)
        request_ends(worker, req, environ, resp)

    worker.handle_error = handle_error
    cfg.set("pre_request", pre_request)
    cfg.set("post_request", post_request)


class _RestOfBody:
    """The rest of an answered request's body, which gunicorn reads to find the next request.

    A broken one ends the connection, like a client that has gone.
    """

    def __init__(self, body: Any) -> None:
        self._body = body

    @property
    def failed(self) -> bool:
        """Whether the app has found the body broken."""
        return bool(getattr(self._body, "failed", False))

    def read(self, size: int | None = None) -> bytes:
        """Read on."""
        try:
            return bytes(self._body.read(size))
        except errors.ParseException:
            raise errors.NoMoreData from None
