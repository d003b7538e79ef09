"""Real gunicorn with gthread: requests that are no HTTP do not fill the log."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from billhook import gunicorn_conf
from support.examples import answers, free_port
from support.processes import logged
from support.timeouts import scaled

NUMBER = 200
TEXT = "SECRET-OF-A-STRANGER"
APP = """
from flask import Flask
from billhook import Billhook

app = Flask(__name__, instance_path=__file__ + ".instance")
app.config.update(BILLHOOK_SECRETS="whsec_" + "A" * 43 + "=", BILLHOOK_ENGINE="worker")
Billhook(app)


def reads_the_body(environ, start_response):
    environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Length", "0")])
    return [b""]


app.wsgi_app = reads_the_body
"""
CONTROL = """
from billhook.gunicorn_conf import *


def post_worker_init(worker):
    pass
"""


def requests() -> list[bytes]:
    """Half of them have no request line, half a chunk's size that is a text."""
    head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    texts = (f"{head if number % 2 else ''}{TEXT}{number}\r\n\r\n" for number in range(NUMBER))
    return [text.encode() for text in texts]


@pytest.mark.parametrize("is_limited", [True, False])
def test_requests_that_are_no_http_write_a_line_a_second_without_their_text(tmp_path, is_limited):
    (tmp_path / "served.py").write_text(APP)
    conf = Path(gunicorn_conf.__file__)
    if not is_limited:  # the control: gunicorn as it is
        conf = tmp_path / "control.py"
        conf.write_text(CONTROL)
    port, log = free_port(), tmp_path / "log"
    command = [sys.executable, "-m", "gunicorn", "-c", str(conf), "-k", "gthread", "-w", "1"]
    command += ["--worker-connections", "1000", "--bind", f"127.0.0.1:{port}", "served:app"]
    with logged(command, log, ready=lambda: answers(port), cwd=tmp_path):
        for request in requests():
            with socket.create_connection(("127.0.0.1", port), timeout=scaled(10)) as client:
                client.sendall(request)
                assert client.recv(100).startswith(b"HTTP/1.1 400")
    text = log.read_text()
    known = ("Invalid request from", "request refused by the server")
    lines = [line for line in text.splitlines() if any(one in line for one in known)]

    if is_limited:
        assert 1 <= len(lines) < NUMBER / 4
        assert TEXT not in text
        assert "request refused by the server with 400 (Bad Request)" in text
    else:
        assert len(lines) == NUMBER
        assert TEXT in text
