"""Many connections that are opened at once: none of them waits for its first answer behind the others."""

from __future__ import annotations

import pytest

from support.new_connections import new_connections
from support.server import gunicorn, head

pytestmark = pytest.mark.slow

CONNECTIONS = 512
AHEAD = 10
"""How many answers another connection may get before one gets its first."""


@pytest.mark.parametrize(
    ("door", "workers"),
    [
        ("asgi-fast", 1),
        # With two, a machine that is busy shows in the figures, too. How many are accepted in a turn is a
        # test of component/servers/test_accepting.py.
        pytest.param("asgi-fast", 2, marks=pytest.mark.long),
        pytest.param("asgi", 2, marks=pytest.mark.long),
    ],
)
def test_each_connection_is_answered_before_others_are_answered_many_times(tmp_path, door, workers):
    with gunicorn(tmp_path, "--worker-connections", "2000", door=door, workers=workers) as server:
        seen = new_connections(server.port, CONNECTIONS, 2.0, server.pid)

    assert (len(seen.first_answers), seen.refused) == (CONNECTIONS, 0)
    assert seen.ahead <= AHEAD
    assert len(seen.held) == workers
    assert min(seen.held) > CONNECTIONS / 4  # none of the processes took nearly all


@pytest.mark.parametrize("door", ["asgi", "asgi-fast"])
def test_control_the_worker_accepts_by_no_other_way(tmp_path, door):
    (tmp_path / "none.py").write_text(
        "from billhook.servers import accepting\naccepting.ACCEPTED_IN_A_TURN = 0\n"
    )
    with gunicorn(tmp_path, "-c", str(tmp_path / "none.py"), door=door, wait_for="") as server:
        server.logged("listening on")
        with server.connect() as connection:
            connection.sendall(head({}, method="GET", path="/healthz"))
            connection.settimeout(1.0)
            with pytest.raises(TimeoutError):
                connection.recv(1)
