"""Moving to PostgreSQL: the lines of the inbox's page handle what waits in the old inbox, and then end."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from billhook.inbox import Inbox, NewDelivery
from support.examples import environment
from support.inbox_view import rows
from support.pages import PAGES
from support.processes import run_command
from support.templates import new_inbox
from support.worker_group import HANDLERS

NOTING = """
@handlers.on(PingTest, retry=[1])
def ping(event):
    with Path("calls").open("a") as calls:
        calls.write("called\\n")
    if len(Path("calls").read_text().splitlines()) == 1:
        raise OSError("not yet")
"""


@pytest.mark.slow
def test_what_waits_in_the_old_inbox_is_handled_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "billing.py").write_text(HANDLERS + NOTING)
    path = tmp_path / "billhook.db"
    old = Inbox(new_inbox(f"sqlite:///{path}"))
    now = datetime.now(UTC)
    old.put(NewDelivery("default", "msg_1", "PingTest", b"{}", "{}", now, now))
    old.close()
    lines = re.search(
        r"<!-- move -->\n```console\n(.*?)```", PAGES["src/billhook/inbox/README.md"], re.DOTALL
    )[1]
    lines = lines.replace("/var/lib/billhook/billhook.db", str(path)).replace(
        "sleep 60", "sleep 1.5; echo again"
    )

    done = run_command(["bash", "-euc", lines], cwd=tmp_path, env=environment())

    assert done.returncode == 0, done.stderr
    assert rows(path, "SELECT state, attempts FROM run") == [("succeeded", 2)]
    assert "again" in done.stdout  # the retry was not due when the first worker ended
