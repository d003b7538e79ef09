"""One table of hostile requests for every door that the configuration of billhook starts, and for `check`.

SECURITY.md says what each of them is answered: no byte of it, no 5xx, once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from billhook.doctor.probe import ProbeGateway, _served
from support.hostile_requests import MARK, TARGETS, answers_of, faults_of
from support.inbox_view import rows
from support.processes import until
from support.server import Server, gunicorn

CONFIGURED = ("-c", "python:billhook.gunicorn_conf", "--worker-connections", "1000")
PYTHON = ("--http-parser", "python")
# More than there are clients: a request whose body never comes holds its thread for seconds, and an answer
# that waits for a thread would be taken for none.
THREADS = ("--threads", "64")
DOORS = {
    "asgi": (),
    "asgi-fast": (),
    "gthread": (*PYTHON, *THREADS),
    "gthread-fast": THREADS,  # the parser in C, where it is installed
    "gevent": PYTHON,
}


@pytest.fixture(scope="module", params=DOORS)
def door(request, tmp_path_factory) -> Iterator[Server]:
    flags, name = DOORS[request.param], request.param
    served_by = "gthread" if name.startswith("gthread") else name
    with gunicorn(tmp_path_factory.mktemp(name), *CONFIGURED, *flags, door=served_by) as running:
        yield running


def found_faults(port: int, *, behind: bool) -> dict[str, list[str]]:
    answers = answers_of(port, behind=behind)
    assert len(answers) > 1_000
    assert all(any(name.startswith(target) for name in answers) for target in TARGETS)
    judged = {name: faults_of(answer, behind=behind) for name, answer in answers.items()}
    return {name: faults for name, faults in judged.items() if faults}


@pytest.mark.slow
@pytest.mark.parametrize("behind", [False, True], ids=["first", "behind a good one"])
def test_a_hostile_request_is_answered_once_without_a_byte_of_it_and_never_by_a_5xx(door, behind):
    before = door.keys()

    assert found_faults(door.port, behind=behind) == {}

    assert door.keys() == before
    log = door.log.read_text()
    assert MARK not in log
    assert "Traceback" not in log
    assert len(log.splitlines()) < 300
    counted = "SELECT cause FROM billhook_count WHERE what = 'refused'"
    until(lambda: {("http_400",), ("http_431",)} <= set(rows(door.inbox, counted)), 20)
    assert door.post().status == 200  # the door serves on


def test_a_hostile_request_to_the_port_of_check_is_answered_so_too(capfd):
    reached: list[object] = []

    def app(environ, start_response):
        reached.append(environ)
        start_response("200 OK", [])
        return [b""]

    with _served(ProbeGateway(app, "http", "")) as (port, errors):
        assert found_faults(port, behind=False) == {}

    assert (reached, errors) == ([], [])
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("door", ["gthread", "gevent"])
def test_without_the_configuration_the_table_finds_faults_of_each_kind(tmp_path, door):
    """The control: gunicorn as it is."""
    with gunicorn(tmp_path, *PYTHON, door=door) as server:
        found = {fault for faults in found_faults(server.port, behind=False).values() for fault in faults}

    assert found >= {"quotes it", "2 answers", "status 501", "version b'1.2'"}
