"""Which process another one was, and whether it has ended: with real processes and namespaces."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys

import pytest

from billhook.basics.process_identity import ProcessIdentity, own_process
from support.postgres import unavailable
from support.processes import until

OWN = own_process()
SAY = [
    sys.executable,
    "-c",
    "from billhook.basics.process_identity import own_process; print(*own_process())",
]
UNSHARE = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child"]


@pytest.fixture
def sleeper():
    """A process that sleeps until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1)
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_this_process_has_not_ended_but_one_that_had_its_id_has():
    assert OWN.pid_space is not None
    assert not OWN.has_ended()
    assert OWN._replace(pid_ticks=OWN.pid_ticks - 1).has_ended()


def test_a_process_has_ended_once_it_is_killed_also_while_nobody_has_waited_for_it(sleeper):
    process = ProcessIdentity(sleeper.pid)
    assert not process.has_ended()

    sleeper.kill()
    until(process.has_ended, 30)  # a zombie
    sleeper.wait()

    assert process.has_ended()


def test_a_process_that_runs_is_another_one_if_it_started_at_another_time(sleeper):
    assert ProcessIdentity(sleeper.pid, OWN.pid_space, OWN.pid_ticks).has_ended()


def test_a_process_of_another_user_runs():
    assert not ProcessIdentity(1).has_ended()


def test_a_process_comes_back_from_its_text_where_it_ran():
    assert ProcessIdentity.of(str(OWN)) == OWN
    assert " " not in str(OWN)
    for text in ("", "host:7:c0ffee", str(OWN._replace(pid_space="another/1")), str(ProcessIdentity(7))):
        assert ProcessIdentity.of(text) is None


def in_a_namespace(*flags):
    """What a process says of itself that is the first of a new namespace of process ids."""
    if shutil.which("unshare") is None:
        unavailable("no namespace can be made: unshare is not installed")
    ran = subprocess.run([*UNSHARE, *flags, *SAY], capture_output=True, text=True, check=False)
    if ran.returncode:
        unavailable(f"no namespace can be made: {ran.stderr}")
    pid, *where = ran.stdout.split()
    assert pid == "1"
    return where


def test_the_same_id_in_another_namespace_is_another_place():
    space, ticks = in_a_namespace("--mount-proc")

    assert space != OWN.pid_space
    assert space.partition("/")[0] == OWN.pid_space.partition("/")[0]  # the same boot
    assert ticks.isdigit()


def test_units_of_systemd_that_hide_the_boot_name_it_by_its_moment():
    """As their ProcSubset=pid does: each of them has the same name for it."""
    hide = ["sh", "-c", 'mount -t proc -o subset=pid,hidepid=invisible proc /proc && exec "$@"', "sh"]
    first, second = (in_a_namespace("--mount", *hide)[0].partition("/")[0] for _ in range(2))

    assert first == second
    assert first.startswith(f"{socket.gethostname()}-")


def test_a_process_that_sees_the_files_of_another_namespace_proves_nothing():
    assert in_a_namespace() == ["None", "None"]


def test_a_child_that_was_forked_is_another_process():
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, str(own_process()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as said:
        pid = said.read().partition("@")[0]
    assert int(pid) == child
