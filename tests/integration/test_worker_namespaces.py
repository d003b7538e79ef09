"""Workers that are each the process 1 of a namespace of their own, as in containers of one host name."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest

from support.inbox_view import place_of, rows
from support.processes import until
from support.signing import SECRET
from support.templates import new_inbox
from support.worker_group import HANDLERS, Programs

SPACES = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
WORKER = [sys.executable, "-m", "billhook", "worker", "billing.py"]
ROWS = "SELECT pid, died_at IS NOT NULL FROM billhook_worker ORDER BY started_at"


@pytest.mark.slow
@pytest.mark.parametrize("apart", [True, False], ids=["containers", "control"])
def test_a_worker_of_another_container_is_not_taken_for_dead_by_its_process_id(tmp_path, apart):
    """The control: in one namespace the next worker knows that the one before it was killed."""
    if apart and subprocess.run([*SPACES, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this kernel gives no namespaces to this account")
    (tmp_path / "billing.py").write_text(f"{HANDLERS}@handlers.on(PingTest)\ndef see(event): ...\n")
    url = new_inbox(f"sqlite:///{tmp_path / 'billhook.db'}")
    where, command = place_of(url), [*(SPACES if apart else []), *WORKER]
    with contextlib.closing(Programs(tmp_path, BILLHOOK_SECRETS=SECRET, BILLHOOK_INBOX_URL=url)) as programs:
        first = programs.run(command)
        until(lambda: len(rows(where, ROWS)) == 1, 60)
        if not apart:
            first.kill()
            first.wait()

        programs.run(command)
        until(lambda: len(rows(where, ROWS)) == 2, 60)
        until(lambda: programs.log().count("worker started with") == 2, 60)

        if apart:
            assert rows(where, ROWS) == [(1, 0), (1, 0)]
            assert "is gone" not in programs.log()
        else:
            until(lambda: [died for _, died in rows(where, ROWS)] == [1, 0], 20)
            until(lambda: "is gone" in programs.log(), 20)
