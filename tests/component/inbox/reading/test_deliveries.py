"""Reading an inbox from Python: finding, counting and following deliveries, on each database."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from billhook.errors import ConfigError, InboxUnavailable
from billhook.inbox import Deliveries, DeliveryFilter, Inbox
from billhook.inbox.reading import deliveries as deliveries_module
from billhook.inbox.reading import searches
from billhook.inbox.reading.deliveries import NewIds
from billhook.inbox.reading.search_scope import search_bound
from billhook.inbox.sqlite.waker import FifoWaker
from billhook.inbox.tables.schema import delivery
from billhook.inbox.tables.states import DeliveryState, RunState
from support.inbox_view import NOON, change, incoming, open_inbox, postgres, rows
from support.postgres import only_sqlite
from support.processes import until
from support.runs import planned
from support.timeouts import scaled


@pytest.fixture
def deliveries(inbox) -> Deliveries:
    return Deliveries(inbox)


def keys(found: Iterator[Any]) -> list[str]:
    return [one.summary.key for one in found]


class Follower:
    """Follows in a thread of its own until the delivery `end` comes."""

    def __init__(self, deliveries: Deliveries, *arguments: Any, **options: Any) -> None:
        self.got: queue.Queue[str] = queue.Queue()
        self._stream = deliveries.follow(*arguments, **options)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for one in self._stream:
            self.got.put(one.summary.key)
            if one.summary.key == "end":
                return

    def next_key(self) -> str:
        return self.got.get(timeout=scaled(15))

    def join(self) -> None:
        self._thread.join(scaled(15))
        assert not self._thread.is_alive()


@pytest.fixture
def follow(deliveries, inbox) -> Iterator[Callable[..., Follower]]:
    """Starts followers, and ends them with the test."""
    made: list[Follower] = []

    def start(*arguments: Any, **options: Any) -> Follower:
        made.append(Follower(deliveries, *arguments, **options))
        return made[-1]

    yield start
    inbox.put(incoming("end"))
    for follower in made:
        follower.join()


def listening(where: Any, inbox: Inbox) -> bool:
    """Whether something listens to the inbox beside the engines."""
    if isinstance(inbox.waker, FifoWaker):
        folder = where.with_name(f"{where.name}-wake.d")
        return any(not one.name.startswith(".") for one in folder.glob("*"))
    query = (  # of this schema: others may listen at the same time
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE query = format('LISTEN \"billhook_%s\"', 'delivery'::regclass::oid)"
    )
    return bool(rows(where, query)[0][0])


# --- finding --------------------------------------------------------------------------------------


def test_the_newest_are_found_first_over_pages(deliveries, inbox):
    for number in range(120):
        inbox.put(incoming(f"m{number}"))

    assert keys(deliveries.find()) == [f"m{number}" for number in reversed(range(120))]
    assert keys(deliveries.find(limit=60)) == [f"m{number}" for number in range(119, 59, -1)]
    assert keys(deliveries.find(limit=0)) == []
    assert deliveries.count() == 120


def test_a_delivery_has_its_body_headers_and_runs(deliveries, inbox):
    stored = inbox.put(incoming("m1", body=b'{"id": 1}')).delivery_id

    found = deliveries.get(stored)

    assert found is not None
    assert (found.body, found.headers, found.runs, found.status) == (b'{"id": 1}', {}, [], "received")
    assert deliveries.get(stored + 1) is None


def test_one_of_several_types_and_sources_is_enough_and_a_key_is_found_in_every_source(deliveries, inbox):
    for source in ("a", "b", "c"):
        for event_type in ("X", "Y", "Z"):
            inbox.put(incoming(event_type, source=source, event_type=event_type))

    for chosen, expected in (
        (DeliveryFilter(event_type=("X", "Y"), source=("b", "c")), ["cY", "cX", "bY", "bX"]),
        (DeliveryFilter(event_type=("X",), source="a"), ["aX"]),
        (DeliveryFilter(key="X"), ["cX", "bX", "aX"]),
        (DeliveryFilter(key="W"), []),
    ):
        found = [one.summary.source + one.summary.key for one in deliveries.find(chosen)]
        assert (found, deliveries.count(chosen)) == (expected, len(expected))


def test_what_a_handler_has_missed_was_planned_and_has_no_run_of_any_of_its_names(deliveries, inbox, where):
    for number, state in enumerate((*RunState,), 1):
        planned(inbox, "new", "old", key=state)
        change(where, "UPDATE run SET state = ? WHERE delivery_id = ?", state.value, number)
    planned(inbox, "old", key="planned")
    planned(inbox, key="unheard")
    planned(inbox, "former", "old", key="former")
    for state in (*DeliveryState,):
        number = planned(inbox, "old", key=f"is {state}")
        change(where, "UPDATE delivery SET state = ? WHERE id = ?", state.value, number)
    inbox.put(incoming("unread"))

    def missed(**more):
        return keys(deliveries.find(DeliveryFilter(**more)))[::-1]

    rest = ["is planned", "is done", "is dead"]
    assert missed(without_handler="new") == ["planned", "unheard", "former", *rest]
    assert missed(without_handler=("new", "former")) == ["planned", "unheard", *rest]
    assert missed(without_handler="new", handler="old", state="dead") == ["is dead"]
    assert deliveries.count(DeliveryFilter(without_handler=("new", "former", "old"))) == 1


def test_a_text_is_found_in_the_exact_bytes_of_a_body(deliveries, inbox):
    bodies = {
        "plain": b'{"id": "inv_42"}',
        "name": '{"name": "Café"}'.encode(),
        "escaped": rb'{"name": "Caf\u00e9"}',
        "no text": b"\xff\x00 inv_42 \xff",
        "empty": b"{}",
    }
    for key, body in bodies.items():
        inbox.put(incoming(key, body=body))

    found = {
        text: keys(deliveries.find(DeliveryFilter(contains=text)))
        for text in ("inv_42", "INV_42", "inv%42", "Café")
    }

    assert found == {"inv_42": ["no text", "plain"], "INV_42": [], "inv%42": [], "Café": ["escaped", "name"]}
    assert deliveries.count(DeliveryFilter(contains="inv_42")) == 2


def test_a_search_is_bounded_to_the_newest_of_what_else_is_selected(inbox):
    for number in range(6):
        kind = "PingTest" if number % 2 else "MonthEndReport"
        inbox.put(incoming(f"m{number}", event_type=kind, at=NOON + timedelta(minutes=number)))
    selection = DeliveryFilter(event_type="PingTest", contains="{}")

    bound = search_bound(inbox, selection, 2)

    assert (bound.number, bound.received_at) == (2, NOON + timedelta(minutes=3))
    searched = replace(selection, from_id=bound.from_id)
    assert keys(Deliveries(inbox).find(searched)) == ["m5", "m3"]
    assert search_bound(inbox, replace(selection, event_type="Overage"), 2) == (0, None, None)


def test_an_inbox_is_opened_by_its_url(inbox, inbox_url):
    inbox.put(incoming("m1"))

    with Deliveries.open(inbox_url) as deliveries:
        assert keys(deliveries.find()) == ["m1"]


def test_opening_a_file_that_is_not_there_makes_none(tmp_path):
    with pytest.raises(ConfigError, match="there is no inbox at"):
        Deliveries.open(f"sqlite:///{tmp_path}/missing.db")

    assert list(tmp_path.iterdir()) == []


def test_bodies_are_read_in_batches(inbox, monkeypatch):
    monkeypatch.setattr(searches, "_READ_TOGETHER", 2)
    for number in range(5):
        kind = "PingTest" if number != 3 else "Overage"
        inbox.put(incoming(f"m{number}", event_type=kind, at=NOON + timedelta(minutes=number)))
    for number, field in ((5, "type"), (6, None)):
        new = incoming(f"m{number}", event_type="", body=b"", at=NOON + timedelta(minutes=number))
        inbox.put(replace(new, type_field=field))

    *found, unread = list(
        searches.read_bodies(inbox, ["PingTest", "InvoiceApproved"], NOON + timedelta(minutes=1))
    )

    assert [(one.event_type, one.state, one.body) for one in found] == [("PingTest", "received", b"{}")] * 3
    # A type in the body may be one of these, as long as it is not read.
    assert (unread.event_type, unread.type_field, unread.state) == ("", "type", "received")
    assert [one.delivery_id for one in found] == sorted({one.delivery_id for one in found})


# --- following ------------------------------------------------------------------------------------


def test_a_follower_is_woken_by_each_commit_of_another_process(follow, inbox, where, monkeypatch):
    monkeypatch.setattr(deliveries_module, "POLL_SECONDS", 1_000.0)  # it does not poll
    follower = follow()
    until(lambda: listening(where, inbox))
    other = open_inbox(where)

    for number in range(5):
        other.put(incoming(f"m{number}"))
        assert follower.next_key() == f"m{number}"


@only_sqlite
def test_control_a_follower_without_notifications_gets_nothing_until_it_polls(follow, inbox, monkeypatch):
    waits, polls = threading.Event(), threading.Event()

    class Deaf:
        def wait(self, timeout_seconds: float) -> bool:
            waits.set()
            return not polls.wait(scaled(20))

        def close(self) -> None:
            pass

    monkeypatch.setattr(inbox.waker, "listener", Deaf)
    follower = follow(after=0)
    assert waits.wait(scaled(20))

    inbox.put(incoming("m1"))

    assert follower.got.empty()
    polls.set()
    assert follower.next_key() == "m1"


def test_a_follower_takes_no_notification_from_a_worker(follow, inbox, where):
    follower = follow()
    until(lambda: listening(where, inbox))
    worker, receiver = open_inbox(where), open_inbox(where)
    worker.waker.fileno()

    receiver.put(incoming("m1"))

    assert follower.next_key() == "m1"
    assert worker.waker.wait(scaled(5)) is True


def test_a_follower_begins_after_the_given_delivery_and_keeps_to_its_filter(deliveries, inbox):
    first = inbox.put(incoming("m1")).delivery_id
    for key, kind in (("m2", "PingTest"), ("m3", "MonthEndReport"), ("m4", "PingTest")):
        inbox.put(incoming(key, event_type=kind))

    found = deliveries.follow(DeliveryFilter(event_type="PingTest"), after=first, idle_seconds=0.0)

    assert keys(found) == ["m2", "m4"]


def test_a_follower_without_a_place_to_begin_begins_when_it_is_made(deliveries, inbox):
    inbox.put(incoming("m0"))
    found = deliveries.follow(idle_seconds=0.0)
    inbox.put(incoming("m1"))

    assert keys(found) == ["m1"]


@pytest.mark.parametrize("late_seconds", [None, 0.0], ids=["soon", "after a long pause of its reader"])
def test_an_id_that_is_committed_after_a_higher_one_is_not_missed(inbox, where, monkeypatch, late_seconds):
    """On PostgreSQL two receivers take ids before either commits."""
    if late_seconds is not None:
        monkeypatch.setattr(deliveries_module, "_LATE_SECONDS", late_seconds)
    first, late, second, third = [inbox.put(incoming(f"m{number}")).delivery_id for number in range(4)]
    change(where, "DELETE FROM delivery WHERE id = ?", late)
    news = NewIds(inbox, first)

    seen = news.poll()
    change(where, "UPDATE delivery SET id = ? WHERE id = ?", late, third)

    assert seen == [second, third]
    assert (news.poll(), news.poll()) == ([late], [])


@only_sqlite
def test_an_id_below_the_newest_that_is_committed_after_the_beginning_is_not_missed(inbox, where):
    _, second, third = [inbox.put(incoming(f"m{number}")).delivery_id for number in range(3)]
    change(where, "DELETE FROM delivery WHERE id = ?", second)
    from_now, after = NewIds(inbox, None), NewIds(inbox, third)

    inbox.put(incoming("m3"))
    change(where, "UPDATE delivery SET id = ? WHERE key = ?", second, "m3")

    assert [news.poll() for news in (from_now, after)] == [[second], [second]]


@pytest.mark.parametrize("bare_url", ["postgresql"], indirect=True)
def test_of_two_interleaved_transactions_a_follower_gets_both_deliveries(deliveries, inbox, where):
    """One takes a lower id and commits later: before the follower began, and while it follows."""
    columns = ", ".join(column.name for column in delivery.columns if column.name not in ("id", "key"))
    copy = f"INSERT INTO delivery (key, {columns}) SELECT %s, {columns} FROM delivery LIMIT 1"
    inbox.put(incoming("first"))
    with closing(postgres(where)) as early, closing(postgres(where)) as late:
        for connection, key in ((early, "early"), (late, "late")):
            connection.autocommit = False
            connection.execute(copy, [key])  # takes an id, and commits below
        inbox.put(incoming("before"))
        news = NewIds(inbox, None)
        early.commit()
        inbox.put(incoming("meanwhile"))
        seen = [news.poll(), news.poll()]
        late.commit()
        seen.append(news.poll())

    keys_of = {one.summary.id: one.summary.key for one in deliveries.find()}
    assert [[keys_of[one] for one in ids] for ids in seen] == [["early", "meanwhile"], [], ["late"]]


@only_sqlite
def test_a_follower_goes_on_where_an_unavailable_inbox_interrupted_it(deliveries, inbox, monkeypatch):
    first = inbox.put(incoming("m1")).delivery_id
    inbox.put(incoming("m2"))
    told: list[str] = []
    failing = {"_selected": 1, "details": 2}
    for name, real in [(each, getattr(deliveries_module, each)) for each in failing]:

        def once(*arguments, name=name, real=real):
            failing[name] -= 1
            if failing[name] == 0:
                raise InboxUnavailable(f"{name} failed")
            return real(*arguments)

        monkeypatch.setattr(deliveries_module, name, once)

    found = deliveries.follow(
        after=first, idle_seconds=0.0, on_unavailable=lambda error: told.append(str(error))
    )

    assert keys(found) == ["m2"]
    assert told == ["_selected failed", "details failed"]


@only_sqlite
def test_ids_that_belong_to_no_delivery_are_forgotten_after_a_while(inbox, where, monkeypatch):
    monkeypatch.setattr(deliveries_module, "_LATE_SECONDS", 0.0)
    first, gone, second = [inbox.put(incoming(f"m{number}")).delivery_id for number in range(3)]
    change(where, "DELETE FROM delivery WHERE id = ?", gone)
    news = NewIds(inbox, first)

    assert news.poll() == [second]
    assert news.poll() == []
    assert news._passed == {}


def test_an_idle_follower_ends_after_its_time_and_its_pipe_is_gone(deliveries, inbox, where):
    assert keys(deliveries.follow(idle_seconds=0.05)) == []
    until(lambda: not listening(where, inbox))


@only_sqlite
def test_the_pipe_of_a_killed_follower_is_removed_by_the_next_commit(inbox, where):
    listener = inbox.waker.listener()
    folder = where.with_name(f"{where.name}-wake.d")
    (pipe,) = folder.iterdir()
    inbox.put(incoming("m1"))
    until(lambda: listener.wait(0.1))
    left = pipe.rename(folder / "left")
    listener.close()
    (folder / ".hidden").write_text("")

    inbox.waker.wake()
    inbox.waker.wake()

    assert [one.name for one in folder.iterdir()] == [".hidden"]
    assert not left.exists()


@only_sqlite
@pytest.mark.parametrize("method", ["listener", "wait"])
def test_a_follower_polls_without_a_listener_and_with_one_that_fails(follow, inbox, monkeypatch, method):
    listener = inbox.waker.listener()

    def fail(*_: Any) -> Any:
        raise OSError("no folder for you, or the server is away")

    monkeypatch.setattr(inbox.waker, "listener", lambda: listener)
    monkeypatch.setattr(inbox.waker if method == "listener" else listener, method, fail)
    for name in ("NO_LISTENER_SECONDS", "POLL_SECONDS"):
        monkeypatch.setattr(deliveries_module, name, 0.05)
    follower = follow(after=0)

    inbox.put(incoming("m1"))

    assert follower.next_key() == "m1"
