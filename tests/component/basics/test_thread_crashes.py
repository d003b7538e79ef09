"""A thread of billhook's that an error ends is logged and counted: `status` and `doctor` show it."""

from __future__ import annotations

import gc
import json

import pytest

from billhook import Handlers
from billhook.basics.concurrency import start_thread
from billhook.engines.handler_pool import HandlerPool
from billhook.events import PingTest
from billhook.extension import get_state
from billhook.inbox.watching.overview import read_overview
from support.apps import deliver
from support.inbox_view import open_inbox
from support.processes import until

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def crash(text: str = "no", name: str = "billhook-example") -> None:
    def fail() -> None:
        raise ValueError(text)

    start_thread(fail, name).join()


def crashes(inbox):
    """What is stored, once the counts in memory are."""
    inbox._counts.close()
    return read_overview(inbox, inbox.now()).crashes


def shown(app, *command: str) -> str:
    return app.test_cli_runner().invoke(args=["billhook", *command], color=False).stdout


def test_an_engine_that_dies_at_each_request_is_logged_and_in_status_and_doctor(
    app_with, monkeypatch, caplog
):
    handlers = Handlers()
    handlers.on(PingTest)(lambda event: None)
    app = app_with(handlers=[handlers], BILLHOOK_ENGINE="thread")
    engine = get_state(app).engine
    monkeypatch.delenv("COLUMNS", raising=False)  # a row on one line

    def logged():
        return [record for record in caplog.records if "has crashed" in record.getMessage()]

    with monkeypatch.context() as patch:
        for name in ("poll", "select"):  # the engine's thread has nothing to wait with
            patch.delattr(f"select.{name}")
        for number in (1, 2):
            assert deliver(app, message_id=f"msg_{number}").status_code == 200
            until(lambda number=number: len(logged()) >= number and not engine.running)
    get_state(app).inbox._counts.close()

    # A request starts the engine up to twice: as it comes, and when it is stored, perhaps after its answer.
    until(lambda: sum(one["number"] for one in json.loads(shown(app, "status", "--json"))["crashes"]) > 1)
    (found,) = json.loads(shown(app, "status", "--json"))["crashes"]
    assert found["number"] <= len(logged()) <= 4
    assert {(record.levelname, record.cause) for record in logged()} == {("ERROR", "AttributeError")}
    assert logged()[0].getMessage() == (
        "the thread billhook-engine has crashed: AttributeError: module 'select' has no attribute 'select'"
    )
    sentence = f"the thread billhook-engine has crashed {found['number']} times in 24 hours, last "
    assert sentence in shown(app, "status")
    assert "Needs attention" in shown(app, "status")
    assert ", with AttributeError: module … has no attribute …" in shown(app, "status")
    assert f"WARNING: {sentence}" in shown(app, "doctor")
    assert found["thread"] == "billhook-engine"
    assert "the thread billhook-engine has crashed" not in shown(app, "check")  # what may be history by now


def test_each_thread_has_its_number_and_its_last_error_over_all_processes(inbox, where):
    other = open_inbox(where)
    other._counts.close()  # as of another process: what happens in this one it does not count
    for text in ("first", "second"):
        crash(text)
    crash("third", "billhook-other")

    found = crashes(inbox)

    assert [(one.thread, one.number, one.last_error) for one in found] == [
        ("billhook-example", 2, "ValueError: second"),
        ("billhook-other", 1, "ValueError: third"),
    ]
    assert read_overview(other, other.now()).crashes == found
    assert [one.number for one in read_overview(other, other.now()).handlers] == []
    other.close()


def test_what_may_name_a_customer_is_not_stored_for_counts_are_not_erased(inbox):
    crash("no customer 'Anna' with anna@example.com and cus_42 \x1b[m")

    assert [one.last_error for one in crashes(inbox)] == [
        r"ValueError: no customer … with … and … \x1b[m",
    ]


def test_a_thread_that_ends_by_itself_is_no_crash(inbox):
    start_thread(int, "billhook-example").join()

    assert crashes(inbox) == []


def test_an_inbox_that_is_gone_is_not_told(inbox, tmp_path):
    passing = open_inbox(tmp_path / "passing.db")
    passing.close()
    del passing
    gc.collect()

    crash()

    assert [one.number for one in crashes(inbox)] == [1]


def test_a_thread_that_calls_handlers_counts_too(app_with):
    state = get_state(app_with())
    pool = HandlerPool(state.dispatcher, 1, lambda: None)
    (first,) = pool._threads

    pool.submit("no run")
    first.thread.join()  # it gives its run back before it counts its end

    assert pool.finished()[1] == ["no run"]
    pool.close()
    assert [one.thread for one in crashes(state.inbox)] == ["billhook-handler"]
