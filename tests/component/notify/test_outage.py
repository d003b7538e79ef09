"""That the inbox cannot be read is told without the inbox, once for a machine and an outage."""

from __future__ import annotations

import os
import stat
import sys
from datetime import UTC, datetime, timedelta

import pytest

from billhook.errors import Draining, InboxUnavailable, OutOfResources, SchemaMismatch
from billhook.notify import OutageNotifier, Writer, outage, state_folders
from billhook.notify.outage import is_outage
from support.acceptance.small_disk import SmallDisk
from support.processes import run_command

AWAY = InboxUnavailable("the database is away")
URL = "postgresql://inbox"


class Address:
    """An address that keeps what it takes."""

    name = "kept"

    def __init__(self, number=1):
        self.number, self.messages, self.refuses = number, [], False

    def send(self, title, body, *, good=False):
        if self.refuses:
            return "HTTP 503"
        self.messages.append((title.partition("] ")[2], body, good))
        return None

    @property
    def titles(self):
        return [title for title, *_ in self.messages]


CANNOT, CAN = "critical: the inbox cannot be read", "the inbox can be read again"


@pytest.fixture
def at(monkeypatch):
    class Time:
        now = datetime(2026, 1, 15, 12, tzinfo=UTC)

        def wait(self, seconds):
            self.now += timedelta(seconds=seconds)

    time = Time()

    class Moved(datetime):
        @classmethod
        def now(cls, tz=None):
            return time.now

    monkeypatch.setattr(outage, "datetime", Moved)
    return time


@pytest.fixture
def address():
    return Address()


@pytest.fixture
def made(address, tmp_path):
    return process(address, tmp_path)


def process(address, *folders):
    """What another process of this machine has, or this one after a restart."""
    return OutageNotifier([address], Writer(), URL, folders)


def lasts(at, made, seconds, *, ended=False):
    """It is said every five seconds that the inbox cannot be read, or can be read again."""
    for _ in range(seconds // 5):
        made.readable() if ended else made.unreadable(AWAY)
        at.wait(5)


def state_file(folder):
    (found,) = folder.glob("billhook-outage-*")
    return found


def test_an_outage_and_its_end_are_each_told_once_by_all_processes_of_a_machine(at, address, tmp_path):
    for _ in range(120):  # two processes, each of which starts anew every time
        process(address, tmp_path).unreadable(AWAY)
        process(address, tmp_path).unreadable(AWAY)
        at.wait(5)
    assert address.titles == [CANNOT]
    _, body, good = address.messages[0]
    assert body.splitlines()[:2] == [
        "postgresql://inbox cannot be read since 2026-01-15 12:00:00 UTC:",
        "the database is away",
    ]
    assert "runbook the-inbox-cannot-be-read" in body
    assert not good

    for _ in range(3):
        process(address, tmp_path).readable()
        process(address, tmp_path).readable()
    assert address.titles == [CANNOT, CAN]
    assert "from 2026-01-15 12:00:00 to 2026-01-15 12:10:00 UTC" in address.messages[1][1]

    process(address, tmp_path).unreadable(AWAY)
    at.wait(60)
    process(address, tmp_path).unreadable(AWAY)
    assert address.titles == [CANNOT, CAN, CANNOT]


@pytest.mark.parametrize(("seconds", "titles"), [(0, []), (44, []), (45, [CANNOT])])
def test_a_server_that_starts_anew_is_not_told(at, made, address, seconds, titles):
    made.unreadable(AWAY)
    at.wait(seconds)
    made.unreadable(AWAY)
    assert address.titles == titles

    made.readable()
    assert len(address.titles) == 2 * len(titles)
    made.unreadable(AWAY)  # a new outage, with a time of its own
    assert len(address.titles) == 2 * len(titles)


def test_an_address_that_fails_is_told_when_it_answers_and_no_other_again(at, tmp_path):
    well, failing = Address(1), Address(2)
    failing.refuses = True
    made = OutageNotifier([well, failing], Writer(), URL, [tmp_path])
    lasts(at, made, 300)
    failing.refuses = False
    lasts(at, made, 120)
    assert (well.titles, failing.titles) == ([CANNOT], [CANNOT])

    failing.refuses = True
    made.readable()
    failing.refuses = False
    lasts(at, made, 120, ended=True)
    assert (well.titles, failing.titles) == ([CANNOT, CAN], [CANNOT, CAN])


def test_an_inbox_that_goes_again_before_everybody_knows_that_it_came_is_told_to_those_who_do(at, tmp_path):
    well, failing = Address(1), Address(2)
    made = OutageNotifier([well, failing], Writer(), URL, [tmp_path])
    made.unreadable(AWAY)
    at.wait(60)
    made.unreadable(AWAY)
    failing.refuses = True
    made.readable()
    made.unreadable(AWAY)
    failing.refuses = False
    at.wait(60)
    made.unreadable(AWAY)

    assert (well.titles, failing.titles) == ([CANNOT, CAN, CANNOT], [CANNOT])


def test_the_file_is_this_users_own_and_says_nothing_secret(at, made, tmp_path):
    made.unreadable(AWAY)

    found = state_file(tmp_path)
    assert stat.S_IMODE(found.stat().st_mode) == 0o600
    assert found.read_text().rstrip() == '{"since": "2026-01-15T12:00:00+00:00", "told": []}'


@pytest.mark.parametrize("planted", ["link", "dangling link", "second name", "fifo"])
def test_a_planted_file_is_refused_and_not_written(at, address, made, tmp_path, planted, caplog):
    made.unreadable(AWAY)
    path = state_file(tmp_path)
    path.unlink()
    victim = tmp_path / "victim"
    if planted == "fifo":
        os.mkfifo(path)
    elif planted == "second name":
        victim.write_text("precious")
        path.hardlink_to(victim)
    else:
        if planted == "link":
            victim.write_text("precious")
        path.symlink_to(victim)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = process(address, tmp_path, elsewhere)

    lasts(at, other, 100)

    assert address.titles == [CANNOT]  # the next folder keeps it
    assert state_file(elsewhere).read_text().strip()
    assert not victim.exists() or victim.read_text() == "precious"
    assert sum("cannot keep the state of an outage" in record.getMessage() for record in caplog.records) == 1


ON_A_FULL_DISK = """
import sys
from datetime import timedelta
from pathlib import Path
from billhook.errors import InboxUnavailable
from billhook.notify import OutageNotifier, Writer, outage

class Address:
    number, name = 1, "kept"

    def send(self, title, body, *, good=False):
        print(title.partition("] ")[2])

def process():
    return OutageNotifier([Address()], Writer(), "billhook.db", [full, elsewhere])

def fill():
    try:
        with (full / "ballast").open("ab", buffering=0) as output:
            while True:
                output.write(bytes(4096))
    except OSError:
        pass

full, elsewhere, when = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
outage.TOLD_AFTER = timedelta(0)
if when == "before":
    fill()
process().unreadable(InboxUnavailable("no space"))
fill()
process().unreadable(InboxUnavailable("no space"))
process().readable()
process().readable()
print(*(len([*folder.glob("billhook-outage-*")]) for folder in (full, elsewhere)))
"""


@pytest.mark.parametrize(("when", "files"), [("before", "0 1"), ("during", "1 0")])
def test_an_outage_is_told_once_where_the_disk_is_full(tmp_path, when, files):
    disk, elsewhere = SmallDisk(tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()

    done = run_command(
        [*disk.wrap, sys.executable, "-c", ON_A_FULL_DISK, str(disk.folder), str(elsewhere), when]
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [CANNOT, CAN, files]


@pytest.mark.parametrize("restarts", [True, False])
def test_a_folder_that_can_be_written_again_begins_no_second_outage(at, address, tmp_path, restarts):
    """The state lies in the next folder, or in the memory of the only process."""
    first, second = tmp_path / "first", tmp_path / "second"
    if restarts:
        second.mkdir()
    made = process(address, first, second)
    for number in range(40):
        made.unreadable(AWAY)
        at.wait(5)
        if number == 20:
            first.mkdir()
        if restarts:
            made = process(address, first, second)
    assert address.titles == [CANNOT]
    assert len([*tmp_path.rglob("billhook-outage-*")]) == 1

    for _ in range(3):
        made.readable()
    assert address.titles == [CANNOT, CAN]


def test_without_any_folder_each_process_tells_for_itself(at, address, tmp_path):
    made = process(address, tmp_path / "missing")
    lasts(at, made, 100)
    made.readable()
    made.readable()

    assert address.titles == [CANNOT, CAN]


def test_while_another_process_sends_this_one_does_not_wait(at, address, tmp_path):
    other = Address()

    class Slow(Address):
        def send(self, title, body, *, good=False):
            process(other, tmp_path).unreadable(AWAY)
            process(other, tmp_path).readable()
            return super().send(title, body, good=good)

    slow = Slow()
    process(slow, tmp_path).unreadable(AWAY)
    at.wait(60)
    process(slow, tmp_path).unreadable(AWAY)

    assert (slow.titles, other.titles) == ([CANNOT], [])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"since": 3, "told": []}', '{"told": [1]}'])
def test_a_file_that_a_process_left_half_written_is_begun_anew(at, made, address, tmp_path, text):
    made.unreadable(AWAY)
    state_file(tmp_path).write_text(text)

    made.readable()
    made.unreadable(AWAY)
    at.wait(60)
    made.unreadable(AWAY)

    assert address.titles == [CANNOT]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (AWAY, True),
        (SchemaMismatch("another", "0001"), True),
        (OutOfResources("no thread"), False),
        (Draining("it ends"), False),
        (ValueError("x"), False),
    ],
)
def test_only_an_inbox_that_cannot_be_read_is_an_outage(error, expected):
    assert is_outage(error) is expected


@pytest.mark.parametrize(
    ("state_directory", "inbox_url", "folders"),
    [
        ("/var/lib/billhook", URL, ["/var/lib/billhook", "/etc/billhook"]),
        ("", "/srv/shop/billhook.db", ["/srv/shop", "/etc/billhook"]),
        ("/var/lib/a:/var/lib/b", "/x/billhook.db", ["/var/lib/a", "/var/lib/b", "/x", "/etc/billhook"]),
    ],
)
def test_the_file_lies_in_the_services_folder_or_beside_the_inbox(
    state_directory, inbox_url, folders, monkeypatch
):
    monkeypatch.setenv("STATE_DIRECTORY", state_directory)

    assert [str(one) for one in state_folders(inbox_url, "/etc/billhook/notify.txt")] == folders
