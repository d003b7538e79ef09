"""Slow and idle clients in front of an honest sender, without a proxy: no delivery is refused."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from support.acceptance.senders import Line, body_of
from support.processes import until
from support.server import Server, gunicorn
from support.signing import signed
from support.slow_clients import KINDS, slow_clients

OF_EACH_KIND = 300
SECONDS = 4.0
ROOM_FOR_ALL = ["--worker-connections", "2000"]
ROOM_FOR_A_THIRD = ["--worker-connections", str(OF_EACH_KIND)]
ROOM_FOR_FEW = ["--worker-connections", "200"]


def answers(server: Server, seconds: float, timeout_seconds: float = 30.0, at_least: int = 1) -> Counter[str]:
    """What a sender gets: every other delivery over a kept connection, the others over a new one each.

    It goes on for `seconds`, and until it has sent `at_least` deliveries, which takes a busy machine longer.
    """
    found: Counter[str] = Counter()
    kept = Line(server.port, timeout_seconds)
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end or number < at_least:
        number += 1
        line = kept if number % 2 else Line(server.port, timeout_seconds)
        try:
            answer = line.post(f"msg_slow_{number}", body_of(number))
            found[f"{answer.status} {answer.body.decode()}"] += 1
        except OSError as error:
            found[type(error).__name__] += 1
        if line is not kept:
            line.close()
        time.sleep(0.02)
    kept.close()
    return found


@pytest.mark.parametrize(
    ("door", "room", "kinds"),
    [
        pytest.param("asgi", ROOM_FOR_ALL, KINDS, marks=pytest.mark.long),
        pytest.param("asgi", ROOM_FOR_A_THIRD, KINDS, marks=pytest.mark.long),
        pytest.param("asgi-fast", ROOM_FOR_ALL, KINDS, marks=pytest.mark.long),
        pytest.param("asgi-fast", ROOM_FOR_A_THIRD, KINDS, marks=pytest.mark.slow),
        *[pytest.param("asgi", ROOM_FOR_FEW, [kind], marks=pytest.mark.long) for kind in KINDS],
    ],
)
def test_slow_clients_cost_an_honest_sender_no_delivery(tmp_path, door, room, kinds):
    counts = dict.fromkeys(kinds, OF_EACH_KIND)
    with gunicorn(tmp_path, *room, door=door) as server, slow_clients(server.port, **counts) as crowd:
        until(lambda: crowd.report.get("opened", 0) >= len(kinds) * OF_EACH_KIND, 20)

        found = answers(server, SECONDS, at_least=20)

        assert crowd.open > OF_EACH_KIND / 2  # they were there, and kept coming
        assert crowd.report["closed"] > OF_EACH_KIND
    assert found.keys() == {'200 {"status": "accepted"}'}


@pytest.mark.slow
def test_control_with_a_thread_for_each_request_they_stop_it(tmp_path):
    counts = dict.fromkeys(KINDS, OF_EACH_KIND)
    with gunicorn(tmp_path, door="gthread") as server:
        assert server.post(b"{}", signed()).status == 200
        with slow_clients(server.port, **counts) as crowd:
            until(lambda: crowd.report.get("opened", 0) >= len(KINDS) * OF_EACH_KIND, 20)

            found = answers(server, 2.0, timeout_seconds=1.0)

    assert found.total() > found['200 {"status": "accepted"}']
