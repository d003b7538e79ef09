"""Bodies whose framing outweighs them, and what gunicorn itself refuses: bounded, counted, in few lines."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from billhook.errors.program import install_command
from support.inbox_view import rows
from support.postgres import unavailable
from support.processes import children, clean_environment, run_command, until
from support.server import gunicorn, head, need_event_loop, read_reply
from support.signing import signed
from support.timeouts import scaled

PARSERS = ("python", "fast")
SENDERS = 120
BODY = b'{"a": "' + b"x" * 200_000 + b'"}'


def parsed_by(parser):
    """gunicorn's option for one of its parsers; skips the test where that one is not installed."""
    if parser == "fast" and find_spec("gunicorn_h1c") is None:
        unavailable("no parser in C: the extra `fast` compiles it")
    return "--http-parser", parser


@pytest.fixture(scope="module", params=PARSERS)
def server(request, tmp_path_factory):
    flags = parsed_by(request.param)
    with gunicorn(tmp_path_factory.mktemp(request.param), *flags, door="asgi") as running:
        yield running


def chunked(body, size, headers):
    """A request with its body in chunks of this size."""
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return head({**headers, "Transfer-Encoding": "chunked"}) + framed + b"0\r\n\r\n"


@pytest.mark.parametrize(("size", "status"), [(8_192, 200), (512, 200), (64, 200), (16, 400), (1, 400)])
def test_chunks_may_be_small_and_not_tiny(server, size, status):
    assert server.ask(chunked(BODY, size, signed(BODY))).status == status


def test_a_small_body_may_come_byte_by_byte(server):
    body = b'{"date": "2026-01-15T09:30:00Z"}'
    assert server.ask(chunked(body, 1, signed(body))).status == 200


@pytest.mark.slow
def test_a_body_with_a_length_may_come_in_any_pieces(server):
    body = b'{"a": "' + b"x" * 500 + b'"}'
    with server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(head({**signed(body), "Content-Length": str(len(body))}))
        for number in range(len(body)):
            connection.sendall(body[number : number + 1])
            time.sleep(0.001)

        assert read_reply(connection).status == 200


ENDLESS = pytest.mark.parametrize(
    "endless",
    [b"1" * 40_000, b"5;" + b"a" * 40_000, b"0\r\nX: " + b"a" * 40_000, b"0\r\n" + b"X: a\r\n" * 8_000],
    ids=["size", "extension", "trailer", "trailers"],
)


@ENDLESS
def test_a_line_of_a_chunked_body_is_not_endless(server, endless):
    with server.connect() as connection:
        connection.sendall(head({**signed(b"{}"), "Transfer-Encoding": "chunked"}) + endless)

        assert read_reply(connection).status == 400


def test_what_the_server_refuses_is_counted_and_logged_once_a_second(server):
    before = len(server.log.read_text().splitlines())
    digits = {**signed(b"{}"), "Content-Length": "9" * 4_301}
    for _ in range(20):
        assert server.ask(head(digits)).status in (400, 431)
        assert server.ask(b"nonsense\r\n\r\n").status == 400
        many = b"".join(b"X-%d: %b\r\n" % (number, b"a" * 4_000) for number in range(20))
        assert server.ask(head(signed(b"{}"), raw=many)).status == 431

    counted = "SELECT sum(number) FROM billhook_count WHERE what = 'refused' AND cause LIKE 'http_4%'"
    until(lambda: rows(server.inbox, counted)[0][0] == 60, 20)
    lines = server.logged("request refused by the server with 431").splitlines()[before:]
    assert 2 <= len(lines) <= 20, lines


def test_two_schemes_of_two_proxies_refuse_no_delivery(server):
    body = b'{"date": "2026-01-15T09:30:00Z"}'
    raw = b"X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http\r\n"
    sent = head({**signed(body), "Content-Length": str(len(body))}, raw=raw) + body

    assert server.ask(sent).status == 200


# --- beside honest senders --------------------------------------------------------------------------


def _attack(port, kind, count, stop):
    """Send bodies in tiny pieces on `count` connections, again and again, until told to stop."""
    import select

    tiny = {
        "chunks": b"1\r\na\r\n" * 40_000,
        "line": b"1" * 240_000,
    }[kind]
    start = head({"Transfer-Encoding": "chunked"}, close=False)
    left: dict[socket.socket, memoryview] = {}
    while not stop.is_set():
        while len(left) < count:
            with contextlib.suppress(OSError):
                one = socket.create_connection(("127.0.0.1", port), timeout=5)
                one.setblocking(False)
                left[one] = memoryview(start + tiny)
        _, writable, _ = select.select([], list(left), [], 0.1)
        for one in writable:
            try:
                left[one] = left[one][one.send(left[one][:16_384]) :]
            except OSError:
                left[one] = memoryview(b"")
            if not left[one]:
                del left[one]
                one.close()


def resident_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chunks", "line"])
@pytest.mark.parametrize("parser", PARSERS)
def test_honest_deliveries_are_answered_beside_many_such_senders(tmp_path, parser, kind):
    fresh = multiprocessing.get_context("spawn")
    stop, seconds, limits = fresh.Event(), [], [scaled(2.5)]
    with gunicorn(tmp_path, *parsed_by(parser), door="asgi") as server:
        (worker,) = children(server.pid)
        before = resident_bytes(worker)
        attacker = fresh.Process(target=_attack, args=(server.port, kind, SENDERS, stop), daemon=True)
        attacker.start()
        time.sleep(1)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            began = time.monotonic()
            assert server.post(b"{}", signed(message_id=f"honest-{len(seconds)}")).status == 200
            seconds.append(time.monotonic() - began)
            limits.append(scaled(2.5))
        memory = resident_bytes(worker) - before
        stop.set()
        attacker.join(30)

    assert max(seconds) < max(limits), f"the slowest of {len(seconds)} took {max(seconds):.2f} s"
    assert memory < 100_000_000


# --- with threads -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def threads(tmp_path_factory):
    with gunicorn(tmp_path_factory.mktemp("gthread")) as running:
        yield running


@pytest.mark.parametrize("size", [8_192, 64, 1])
def test_threads_take_chunks_of_any_size(threads, size):
    body = BODY if size > 1 else b'{"date": "2026-01-15T09:30:00Z"}'
    assert threads.ask(chunked(body, size, signed(body))).status == 200


@ENDLESS
def test_threads_wait_for_the_end_of_a_line_until_the_deadline(threads, endless):
    with threads.connect() as connection:
        connection.sendall(head({**signed(b"{}"), "Transfer-Encoding": "chunked"}) + endless)

        # gunicorn 23 takes a body for whole whose trailers do not end, and this one is not what was signed.
        assert read_reply(connection).status in (400, 401)


# --- another gunicorn -------------------------------------------------------------------------------

CHANGED = """
import sys
from gunicorn.asgi import protocol
{change}
from billhook.cli import main
main(["serve", "--bind", "127.0.0.1:8123", "--worker-class", {kind!r}])
"""


@pytest.mark.parametrize(
    ("kind", "change", "named"),
    [
        ("asgi", "del protocol.ASGIProtocol._on_body", "ASGIProtocol._on_body"),
        ("gthread", "from gunicorn import util; del util.write_error", "util.write_error"),
    ],
)
def test_serve_refuses_a_gunicorn_whose_insides_changed(tmp_path, kind, change, named):
    need_event_loop()
    environ = clean_environment(BILLHOOK_SECRETS="whsec_" + "A" * 43 + "=")
    script = CHANGED.format(change=change, kind=kind)
    ran = run_command([sys.executable, "-c", script], cwd=tmp_path, env=environ)

    assert ran.returncode == 2
    assert f"its {named} is not as in 27." in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


OLDER = """
import sys
import gunicorn
gunicorn.__version__, gunicorn.version_info = "26.2.0", (26, 2, 0)
sys.modules["gunicorn.asgi"] = None  # as in gunicorn 24
from billhook.cli import main
from gunicorn.app.wsgiapp import run
sys.argv[1:] = {arguments}
{call}
"""
EVENT_LOOP = ["-c", "python:billhook.gunicorn_conf", "billhook.standalone:create_asgi_app()"]


@pytest.mark.parametrize(
    ("call", "arguments"),
    [("main()", ["serve"]), ("main()", ["demo"]), ("run()", EVENT_LOOP)],
    ids=["serve", "demo", "gunicorn"],
)
def test_on_an_older_gunicorn_a_sentence_names_the_extra(tmp_path, call, arguments):
    script = OLDER.format(call=call, arguments=arguments)
    ran = run_command([sys.executable, "-c", script], cwd=tmp_path)

    assert ran.returncode in (1, 2)
    assert ran.stdout == ""
    assert ran.stderr == (
        "Error: serving with gunicorn 27.0.1 or newer, where 26.2.0 is installed, needs the extra serve: "
        f"{install_command('serve')}\n"
    )


def test_on_an_older_gunicorn_threads_serve(tmp_path):
    """So `.ci/floors` shows with the lowest one; here another mistake is told."""
    script = OLDER.format(call="main()", arguments=["serve", "--worker-class", "gthread", "missing.py"])
    ran = run_command([sys.executable, "-c", script], cwd=tmp_path)

    assert "there is no handlers file" in ran.stderr
