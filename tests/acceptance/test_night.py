"""A night on call: each incident is told once, within two minutes of the moment that its condition holds.

A scene is a line of `SCENES`: what is done, and the subjects that people get then, by mail and by HTTP. One
player plays them all, with real processes. It is red for a message that is late, missing, sent twice or of
anything else, and where `status`, the dashboard and the metrics do not show the condition.
"""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from billhook.events import ContractCreated, InvoiceApproved, sample
from billhook.inbox import RunPlan, WorkerRecord
from billhook.inbox.counting.counts import NO_DURATION, CountKey, Counts, Sum, hour_of
from billhook.inbox.running.workers import record_stop
from support.acceptance.night import Night, night_on
from support.acceptance.small_disk import SmallDisk
from support.acceptance.stack import UP_SECONDS
from support.acceptance.wrong_clock import WrongClock
from support.inbox_view import hung, incoming, open_inbox
from support.processes import until
from support.proxy import proxied
from support.signing import OTHER_SECRET
from support.templates import new_inbox
from support.timeouts import scaled

PROMISED_SECONDS = 120.0
LOADED_SECONDS = 120.0
QUIET_SECONDS = 75.0
"""After the last message: the figures are looked at every 60 s, and what they show would be told then."""
UNWATCHED_SECONDS = 8.0
"""How long the control waits for what nobody can tell."""
BOTH = ("mail", "hook")
DISK_BYTES, MUCH_BYTES = 128 * 1024**2, 80 * 1024**2
SOON_SECONDS = 90.0
SEEN_SECONDS = 60.0
"""Workers that die again and again are told by then."""
CONTRACT, APPROVED = sample(ContractCreated).to_json(), sample(InvoiceApproved).to_json()
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@dataclass(frozen=True)
class Step:
    """What is done, and the subjects that follow `within` seconds, of which `holds_after` are its own."""

    do: Callable[[Night], object]
    told: tuple[str, ...] = ()
    ways: tuple[str, ...] = BOTH
    holds_after: float = 0.0
    within: float = PROMISED_SECONDS


@dataclass(frozen=True)
class Scene:
    """An incident: its steps, what a message says, the condition that is shown, and what was before.

    `by` says who receives and handles: "units" are a web process, workers, and `notify send`; "worker alone"
    is no web process and no other; "serve" and "thread" are one program that does all.
    """

    steps: Sequence[Step]
    says: str = ""
    condition: str = ""
    past: Callable[[Night], None] = lambda night: None
    workers: Sequence[Mapping[str, Any]] = ({},)
    on: str = "sqlite"
    shown: Callable[[Night], None] = lambda night: None
    is_short: bool = False
    by: str = "units"


# --- what was before --------------------------------------------------------------------------------


def _count(night: Night, *keys: CountKey, last_at: datetime | None = None) -> None:
    counts = Counts()
    for key in keys:
        counts.put(key, Sum(10, 0.0, last_at or key.hour))
    with contextlib.closing(open_inbox(night.where)) as inbox, inbox.database.write() as connection:
        counts.write(connection)


def came_every_hour(night: Night, ended: timedelta = 5 * HOUR) -> None:
    """Nine days of invoices, the last of them so long ago."""
    last_at = datetime.now(UTC) - ended
    hours = (hour_of(last_at) - number * HOUR for number in range(9 * 24))
    facts = ("default", "InvoiceApproved", "", "accepted", "", NO_DURATION)
    _count(night, *(CountKey(at, *facts) for at in hours))
    _count(night, CountKey(hour_of(last_at), *facts), last_at=last_at)


def is_soon_overdue(night: Night) -> None:
    """The same, and silence begins in 90 s: the longest gap is of 2 h at most, and twice that is too long."""
    came_every_hour(night, 4 * HOUR - timedelta(seconds=SOON_SECONDS))


def was_quick(night: Night) -> None:
    """Three hundred quick calls of yesterday."""
    hour = hour_of(datetime.now(UTC))
    hours = (hour - number * HOUR for number in range(20, 50))
    _count(night, *(CountKey(at, "", "", "book", "succeeded", "", 5) for at in hours))


def was_behind(night: Night) -> None:
    """More deliveries of eleven minutes ago, planned then, than one a minute can have finished."""
    at = datetime.now(UTC) - 11 * MINUTE
    with contextlib.closing(open_inbox(night.where)) as inbox:
        came = (
            incoming(f"old-{each}", event_type="ContractCreated", body=CONTRACT, at=at) for each in range(120)
        )
        plans = [RunPlan(inbox.put(each).delivery_id, ("limited",)) for each in came]
        with inbox.transaction("before") as transaction:
            transaction.plan(plans, at)


def was_stopped(night: Night) -> None:
    """The last worker stopped in order eleven minutes ago, and a delivery came then."""
    at = datetime.now(UTC) - 11 * MINUTE
    with contextlib.closing(open_inbox(night.where)) as inbox:
        inbox.put(incoming("waits", at=at))
        inbox.record_worker(WorkerRecord("before", "worker", 1, at - HOUR), at)
        with inbox.database.write() as connection:
            record_stop(connection, "before", at)


# --- what is done -----------------------------------------------------------------------------------


def keys(word: str, number: int) -> Iterator[str]:
    """Keys that the handlers know by their beginning."""
    return (f"{word}-{each}" for each in range(number))


def send(word: str, number: int = 1, **more: object) -> Callable[[Night], object]:
    """Send so many deliveries, each of which must be answered 200."""

    def do(night: Night) -> None:
        assert set(night.send(*keys(word, number), **more)) == {200}  # type: ignore[arg-type]

    return do


def keep_storing(word: str, event_type: str = "InvoiceApproved", body: bytes | None = None) -> Step:
    """Store a delivery a second; people are told within a minute that workers die, and while they do what."""
    stored = APPROVED if body is None else body
    doing = (
        "reading NightOrder|soon after their start" if event_type == "NightOrder" else "while they run book"
    )
    return Step(
        lambda night: night.keep_storing(word, event_type, stored),
        (rf"critical: workers die again and again: \d+ in \d min, .*({doing})",),
        within=SEEN_SECONDS,
    )


def told_of_deaths(doing: str) -> Step:
    """Do nothing: people are told within a minute that workers die, and while they do what."""
    return Step(
        lambda night: None, (rf"critical: workers die again and again: \d+ in \d min, ({doing})",),
        within=SEEN_SECONDS,
    )  # fmt: skip


def drain_again_and_again(night: Night) -> None:
    """Have cron start a worker that ends in order, a dozen times."""
    for number in range(12):
        send(f"good{number}")(night)
        night.command("worker", "--drain")


def send_contracts(night: Night) -> None:
    """Send ten to a handler that has one a minute."""
    send("new", 10, event_type="ContractCreated", body=CONTRACT)(night)


def one_in_twelve_fails(night: Night) -> None:
    """Nine of 120."""
    for number in range(120):
        night.send(f"{'bug' if number % 12 == 0 and number < 108 else 'good'}-{number}")


def refuse(number: int = 60) -> Callable[[Night], object]:
    """Send deliveries that are signed with a secret that the receiver does not have."""
    return lambda night: night.refused(number, OTHER_SECRET)


def database_away(night: Night) -> None:
    """Cut the line to the database."""
    assert night.proxy is not None
    night.proxy.refuses = True
    night.proxy.cut()


def database_back(night: Night) -> None:
    """Let it be reached again."""
    assert night.proxy is not None
    night.proxy.refuses = False


def not_stored(night: Night) -> None:
    """Have three deliveries come while another program holds the database."""
    with hung(night.where):
        assert night.send(*keys("late", 3)) == [503] * 3


def nearly_fill_disk(night: Night) -> None:
    """Leave less than 100 MiB beside the inbox."""
    assert night.disk is not None
    night.disk.fill(night.web, MUCH_BYTES)


def fill_disk(night: Night) -> None:
    """Take the rest, and have deliveries come."""
    disk = night.disk
    assert disk is not None
    until(lambda: disk.fill(night.web) and night.ask("/readyz") == 503, 60)
    assert night.send(*keys("full", 3)) == [503] * 3


def empty_disk(night: Night) -> None:
    """Give the rest back, and have them come again."""
    assert night.disk is not None
    os.truncate(night.disk.seen_by(night.web) / "ballast", MUCH_BYTES)
    until(lambda: night.send(*keys("full", 3)) == [200] * 3, 60)


def worker_whose_clock_is_off(night: Night) -> None:
    """Start another worker on a machine that is half a minute ahead."""
    clock = WrongClock(night.folder)
    clock.set(30)
    night.wrap = clock.wrap
    unit = night.start_unit()
    until(lambda: unit.process.says("ahead of the database server's"), UP_SECONDS)


def stop_worker(night: Night) -> None:
    """SIGKILL for the only worker, which nobody starts again. Before its first row there was none to miss."""
    until(lambda: night.value("SELECT count(*) FROM billhook_worker") == 1, UP_SECONDS)
    unit = night.units.pop()
    unit.stop()
    unit.process.kill()


def deploy(release: str) -> Callable[[Night], object]:
    """Stop the worker in order, start one of another release, and send it twenty deliveries."""

    def do(night: Night) -> None:
        night.drain()
        night.units.pop().stop(in_order=True)
        night.start_unit(BILLHOOK_RELEASE=release)
        send(release, 20)(night)

    return do


def mail_away(night: Night) -> None:
    """Have a bug while the mail server is away."""
    night.people.stop_mail()
    send("bug")(night)


def mail_stays_away(night: Night) -> None:
    """Wait until the pause between two tries is as long as it gets within a day."""

    def failures() -> int:
        states = json.loads(night.value("SELECT addresses FROM billhook_notifier"))
        return int(states.get("1", {}).get("failures", 0))

    until(lambda: failures() >= 4, 240)


def mail_back(night: Night) -> None:
    """Start the mail server again."""
    night.people.start_mail()


def quiet_night(night: Night) -> None:
    """A delivery a second, a deploy, and strangers."""
    for number in range(40):
        send(f"good{number}")(night)
        time.sleep(1)
        if number == 10:
            night.refused(5, OTHER_SECRET)
        if number == 20:
            deploy("next")(night)


# --- what else is shown -----------------------------------------------------------------------------


def shows(number: int, *texts: str) -> Callable[[Night], None]:
    """`billhook failures show` says this when so many calls are over."""

    def shown(night: Night) -> None:
        until(lambda: night.value("SELECT count(*) FROM run WHERE attempts > 0") == number, 60)
        (issue,) = night.command("failures", "list", "--json")
        text = night.command("failures", "show", issue["id"])
        assert all(each in text for each in texts), text

    return shown


def shows_clock(night: Night) -> None:
    """`billhook status` says so on the machine whose clock it is."""
    assert "clock" in {one["name"] for one in night.command("status", "--json")["conditions"]}


def all_done(night: Night) -> None:
    """Nothing waits."""
    night.drain(120)


SCENES = {
    "killer": Scene(
        [Step(send("kills"), ("critical: workers die while book runs",), holds_after=70)],
        "handlers pause book", "killer",
    ),
    "crash loop": Scene(
        [told_of_deaths("while no handler runs|soon after their start")],
        "billhook workers", "crash-loop", workers=[{"lives_seconds": 2.0}],
    ),
    "crash loop in the first second": Scene(
        [told_of_deaths("soon after their start")],
        "billhook workers", "crash-loop", workers=[{"lives_seconds": 0.7}],
    ),
    "crash loop of a handler, worker alone": Scene(
        [keep_storing("kills")], "handlers pause book", "killer", by="worker alone",
    ),
    "crash loop at the start, worker alone": Scene(
        [told_of_deaths("soon after their start")],
        "billhook workers", "crash-loop", by="worker alone", workers=[{"NIGHT_DIES_AFTER": "0.5"}],
    ),
    "crash loop while reading, worker alone": Scene(
        [keep_storing("read", "NightOrder", b'{"number": 1}')], "runbook workers-die", by="worker alone",
    ),
    "crash loop of a handler, serve": Scene(
        [keep_storing("kills")], "handlers pause book", "killer", by="serve",
    ),
    "crash loop while loading, serve": Scene(
        [told_of_deaths("before they have loaded the handlers")],
        "billhook workers", "crash-loop", by="serve", workers=[{"NIGHT_CANNOT_LOAD": "1"}],
    ),
    "crash loop of a handler, thread": Scene(
        [keep_storing("kills")], "handlers pause book", "killer", by="thread",
    ),
    "drained from cron": Scene([Step(drain_again_and_again)], shown=all_done, workers=()),
    "no worker": Scene(
        [Step(stop_worker, ("critical: no worker is alive",), holds_after=90)],
        "billhook doctor", "no-worker",
    ),
    "workers stopped in order": Scene(
        [Step(lambda night: None, ("critical: no worker is alive",))],
        "billhook doctor", "no-worker", was_stopped, workers=(),
    ),
    "slow handler": Scene(
        [Step(send("slow", 12), ("warning: book is slow: half of its calls take over",))],
        "billhook handlers", "slow", was_quick,
    ),
    "bug for one in twelve": Scene(
        [Step(one_in_twelve_fails, ("warning: book fails: KeyError",))],
        r"at .*night_handlers.py:\d+ in book", "failing", shown=shows(120, "9 of 120, 7.5 %"), is_short=True,
    ),
    "database away": Scene(
        [
            Step(database_away, ("critical: the inbox cannot be read",), holds_after=45),
            Step(database_back, ("the inbox can be read again",)),
        ],
        "billhook doctor", on="proxy",
    ),
    "disk full": Scene(
        [
            Step(nearly_fill_disk, (r"critical: \d+ MiB are free beside the inbox",)),
            Step(fill_disk, ("critical: the inbox cannot be read",), holds_after=45),
            Step(empty_disk, ("the inbox can be read again", "critical: deliveries were answered 503")),
        ],
        "billhook deliveries prune", "disk-full", on="small disk",
    ),
    "clock off": Scene([Step(worker_whose_clock_is_off)], shown=shows_clock, on="postgresql"),
    "503": Scene(
        [Step(not_stored, ("critical: deliveries were answered 503",))],
        "billhook doctor", "not-stored",
    ),
    "secret rotated": Scene(
        [Step(refuse(), ("warning: InvoiceApproved has stopped coming",), holds_after=SOON_SECONDS)],
        "signed deliveries are refused\n(.*\n)*billhook reconcile", "silence", is_soon_overdue,
    ),
    "forged flood": Scene([Step(refuse())], condition="refused", is_short=True),
    "poison": Scene(
        [Step(send("poison", body=b"{"), ("warning: deliveries of InvoiceApproved are quarantined",))],
        "deliveries list --state quarantined", "quarantined", is_short=True,
    ),
    "silence": Scene(
        [Step(lambda night: None, ("warning: InvoiceApproved has stopped coming",))],
        "billhook reconcile", "silence", came_every_hour,
    ),
    "backlog behind a rate": Scene(
        [Step(send_contracts, ("warning: more deliveries come than are handled",), holds_after=120)],
        "billhook workers", "backlog", was_behind,
    ),
    "old worker beside new code": Scene(
        [Step(send("good", 30))], shown=all_done,
        workers=[{"BILLHOOK_RELEASE": "old"}, {"BILLHOOK_RELEASE": "new"}],
    ),
    "wrong deploy": Scene(
        [Step(send("good", 20)), Step(deploy("wrong"), ("warning: book fails: KeyError",))],
        "failures show", "failing", shown=shows(40, "20 of 20", "wrong"),
        workers=[{"BILLHOOK_RELEASE": "right"}],
    ),
    "mail server away": Scene(
        [
            Step(mail_away, ("warning: book fails: KeyError",), ("hook",)),
            Step(mail_stays_away),
            Step(mail_back, ("warning: book fails: KeyError",), ("mail",)),
        ],
        "failures show", "failing",
    ),
    "nothing wrong": Scene([Step(quiet_night)], shown=all_done),
}  # fmt: skip


class Player:
    """Plays a scene, and says what was told late, missing, or unexpected."""

    def __init__(self, night: Night, scene: Scene, *, quiet_seconds: float, watched: bool = True) -> None:
        self._night = night
        self._scene = scene
        self._quiet_seconds = quiet_seconds
        self._watched = watched
        self._expected: dict[str, list[str]] = {way: [] for way in BOTH}
        self.seconds = 0.0
        """How long the slowest of the messages took, after its condition held."""

    def play(self) -> None:
        """Play it. Raises AssertionError."""
        night, scene = self._night, self._scene
        scene.past(night)
        if scene.by in ("serve", "thread"):
            night.start_all(scene.by, **scene.workers[0])
        else:
            self._start_units()
        for unit in night.units:
            until(lambda unit=unit: unit.process.says("worker started with"), UP_SECONDS)
        try:
            for step in scene.steps:
                self._play(step)
            time.sleep(self._quiet_seconds)  # what is wrong besides is told now
            self._check()
        except AssertionError as error:
            error.add_note(f"told: {night.people.told}\n{night.logs()[-6_000:]}")
            raise

    def _start_units(self) -> None:
        night, scene = self._night, self._scene
        if scene.by == "units":
            night.begin()
        for settings in scene.workers:
            night.start_unit(**settings if self._watched else {**settings, "BILLHOOK_NOTIFY_FILE": ""})
        if self._watched and scene.by == "units":
            night.start_notifier()

    def _play(self, step: Step) -> None:
        began = time.monotonic()
        step.do(self._night)
        for way in step.ways:
            self._expected[way] += step.told
        people = self._night.people

        def all_came() -> bool:
            return all(len(people.by(way)) >= len(self._expected[way]) for way in step.ways)

        if not self._watched:
            wait_for(all_came, UNWATCHED_SECONDS)
        # Where many processes share a core a message comes later, but not by minutes.
        limit = step.holds_after + step.within
        wait_for(all_came, min(scaled(limit), limit + LOADED_SECONDS))
        if step.told:
            last = max(one.at for one in people.told)
            self.seconds = max(self.seconds, last - began - step.holds_after)

    def _check(self) -> None:
        night, scene = self._night, self._scene
        for way, expected in self._expected.items():
            titles = [one.title for one in night.people.by(way)]
            assert len(titles) == len(expected), titles
            for title, pattern in zip(titles, expected, strict=True):
                assert re.match(pattern, title), title
        first = [night.people.by(way)[0].body for way in BOTH if self._expected[way]]
        assert all(re.search(scene.says, body) for body in first), first
        if scene.condition:
            shown = night.command("status", "--json")["conditions"]
            (text,) = (one["text"] for one in shown if one["name"] == scene.condition)
            if scene.by != "worker alone":
                self._check_pages(text)
        scene.shown(night)

    def _check_pages(self, text: str) -> None:
        night, condition = self._night, self._scene.condition

        def shows_it() -> bool:
            with contextlib.suppress(OSError):  # with the engine `thread`, who answers may die
                # But for its numbers: a loop goes on meanwhile.
                assert re.sub(r"\d", "", text) in re.sub(r"\d", "", html.unescape(night.page()))
                assert f'billhook_condition{{name="{condition}"}} 1.0' in night.metrics()
                return True
            return False

        until(shows_it, 60)


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    """Wait so long and no longer, whatever the load."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not told within {seconds:.0f} s"
        time.sleep(0.05)


@contextlib.contextmanager
def stage(folder: Path, scene: Scene, request: pytest.FixtureRequest) -> Iterator[Night]:
    """The processes' place, on the database that the scene needs."""
    with contextlib.ExitStack() as kept:
        disk = SmallDisk(folder, DISK_BYTES) if scene.on == "small disk" else None
        if disk is not None:
            url = f"sqlite:///{disk.folder / 'billhook.db'}"
        elif scene.on == "sqlite":
            url = new_inbox(f"sqlite:///{folder / 'billhook.db'}")
        else:
            url = new_inbox(request.getfixturevalue("postgres_url"))
        proxy = kept.enter_context(proxied(url)) if scene.on == "proxy" else None
        night = kept.enter_context(night_on(folder, url if proxy is None else proxy.url))
        night.proxy, night.disk = proxy, disk
        yield night


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if scene.is_short else pytest.mark.long)
        for name, scene in SCENES.items()
    ],
)
def test_an_incident_is_told_once_within_two_minutes(tmp_path, request, figures, long, name):
    with stage(tmp_path, SCENES[name], request) as night:
        player = Player(night, SCENES[name], quiet_seconds=QUIET_SECONDS if long else 5)
        player.play()
    figures.add(f"wrong messages, {name}", 0, len(night.people.told), round(player.seconds), "s until told")


@pytest.mark.slow
def test_control_a_night_that_nobody_watches_is_noticed(tmp_path, request):
    scene = SCENES["poison"]
    with (
        stage(tmp_path, scene, request) as night,
        pytest.raises(AssertionError, match="not told within"),
    ):
        Player(night, scene, quiet_seconds=0, watched=False).play()
