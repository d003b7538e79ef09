"""Handlers that put their run off: `raise Retry(at=moment)`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from billhook import Handlers, Retry
from billhook.errors import HandlerControl
from billhook.events import InvoiceApproved, PingTest
from billhook.extension import get_state
from billhook.inbox.reading.deliveries import details
from billhook.inbox.running.postponing import MOST_POSTPONEMENTS
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import list_issues
from billhook.signals import handler_retrying
from support.apps import deliver
from support.inbox_view import NOON
from support.signing import APPROVED

DAY = 86_400


@pytest.fixture
def putting_off(shop, frozen_clock):
    """Build an app whose handler raises what a function of the number of its call returns, if anything."""

    def build(asked, **options):
        handlers, calls = Handlers(), []

        @handlers.on(PingTest, name="wait", retry=[10, 60], **options)
        def wait(event, delivery):
            calls.append(frozen_clock.now())
            if (error := asked(len(calls))) is not None:
                raise error

        app = shop(handlers)
        assert deliver(app, b"{}", "PingTest").status_code == 200
        return app, calls

    return build


def later(app, clock, seconds) -> int:
    clock.advance(seconds=seconds)
    return get_state(app).handle_due()


def the_run(app):
    (run,) = details(get_state(app).inbox, [1])[0].runs
    return run


def test_it_is_called_at_the_time_it_named_and_not_before(putting_off, frozen_clock):
    at = frozen_clock.now() + timedelta(days=3)
    app, calls = putting_off(lambda number: Retry("the books are closed", at=at) if number == 1 else None)

    found = the_run(app)
    made = [later(app, frozen_clock, seconds) for seconds in (3 * DAY - 1, 1)]

    assert (found.standing, found.due_at, found.not_before) == ("retrying", at, at)
    assert found.last_error == "Retry: the books are closed"
    assert made == [0, 1]
    assert calls[-1] == at
    assert (the_run(app).state, the_run(app).not_before) == ("succeeded", None)


def test_no_attempt_is_counted_for_it(putting_off, frozen_clock):
    def asked(number):
        return Retry(at=frozen_clock.now() + timedelta(hours=1)) if number <= 5 else OSError()

    app, calls = putting_off(asked)
    for _ in range(5):
        later(app, frozen_clock, 3_600)
    waits = [later(app, frozen_clock, seconds) for seconds in (9, 1, 59, 1)]

    assert len(calls) == 8  # put off 5 times, then all attempts of the schedule
    assert waits == [0, 1, 0, 1]
    assert the_run(app).state == "dead"


def test_it_is_no_issue_and_pauses_no_handler(putting_off, frozen_clock):
    app, calls = putting_off(
        lambda number: Retry(at=frozen_clock.now()) if number < 9 else None, pause_after=2
    )
    for _ in range(8):
        later(app, frozen_clock, 0)

    inbox = get_state(app).inbox
    update_issues(inbox, frozen_clock.now())
    assert (len(calls), the_run(app).state) == (9, "succeeded")
    assert (list_issues(inbox), inbox.paused_handlers()) == ([], [])


def test_who_puts_a_run_off_again_and_again_fails_and_the_failure_says_so(putting_off, frozen_clock):
    app, calls = putting_off(lambda number: Retry(at=frozen_clock.now() + timedelta(minutes=1)))

    for _ in range(MOST_POSTPONEMENTS):
        later(app, frozen_clock, 60)
    failed = the_run(app)
    for seconds in (10, 60):
        later(app, frozen_clock, seconds)

    assert len(calls) == MOST_POSTPONEMENTS + 3
    assert failed.state == "due"
    assert failed.last_error == (
        "PutOffTooOften: the handler has put this run off 30 times with Retry(at=…), and may not again"
    )
    assert failed.due_at == calls[MOST_POSTPONEMENTS] + timedelta(seconds=10)
    assert the_run(app).state == "dead"
    inbox = get_state(app).inbox
    update_issues(inbox, frozen_clock.now())
    (issue,) = list_issues(inbox)
    assert (issue.title.partition(":")[0], issue.count) == ("PutOffTooOften", 3)


@pytest.mark.parametrize(("asked", "found"), [(32 * DAY, 31 * DAY), (31 * DAY, 31 * DAY)])
def test_a_time_is_31_days_ahead_at_most(putting_off, frozen_clock, asked, found):
    begin = frozen_clock.now()
    app, _ = putting_off(lambda number: Retry(at=begin + timedelta(seconds=asked)) if number == 1 else None)

    assert the_run(app).due_at == begin + timedelta(seconds=found)


def test_a_time_that_has_passed_is_now(putting_off, frozen_clock):
    app, calls = putting_off(lambda number: Retry(at=NOON - timedelta(days=1)) if number == 1 else None)
    later(app, frozen_clock, 0)

    assert (calls, the_run(app).state) == ([frozen_clock.now()] * 2, "succeeded")


def test_a_time_of_any_zone_is_its_moment(putting_off, frozen_clock):
    at = (frozen_clock.now() + timedelta(hours=2)).astimezone(timezone(timedelta(hours=5, minutes=45)))
    app, _ = putting_off(lambda number: Retry(at=at) if number == 1 else None)

    assert the_run(app).due_at == at.astimezone(UTC)


def test_a_time_without_a_zone_and_two_answers_are_refused():
    with pytest.raises(ValueError, match="at must have a time zone, got the naive 2026-01-31T18:45:00"):
        Retry(at=datetime(2026, 1, 31, 18, 45))  # noqa: DTZ001 - that is the mistake
    with pytest.raises(ValueError, match="choose one of after_seconds and at"):
        Retry(after_seconds=1, at=datetime(2026, 1, 31, tzinfo=UTC))


def test_a_subclass_with_another_value_is_retried_by_the_schedule(putting_off, frozen_clock):
    class Odd(Retry):
        def __init__(self) -> None:
            HandlerControl.__init__(self, "odd")
            self.at = "soon"

    app, _ = putting_off(lambda number: Odd() if number == 1 else None)

    assert [later(app, frozen_clock, seconds) for seconds in (9, 1)] == [0, 1]


def test_observers_and_the_log_are_told_the_time(putting_off, frozen_clock, caplog):
    caplog.set_level("INFO", "billhook")
    at, seen = frozen_clock.now() + timedelta(hours=2), []

    def observe(sender, *, due_at, **facts):
        seen.append(due_at)

    with handler_retrying.connected_to(observe):
        putting_off(lambda number: Retry("closed", at=at) if number == 1 else None)

    assert seen == [at]
    (record,) = (one for one in caplog.records if "put delivery" in one.message)
    assert record.levelname == "INFO"
    assert (
        f"handler wait put delivery 1 off, again in 2 h (at {at:%Y-%m-%d %H:%M:%S} UTC): Retry: closed"
        in (record.message)
    )


def test_a_newer_delivery_takes_the_place_of_one_that_was_put_off_where_only_the_newest_counts(
    shop, frozen_clock
):
    handlers, calls = Handlers(), []

    @handlers.on(InvoiceApproved, name="sync", ordered_by="invoice_id", newest_only=True)
    def sync(event, delivery):
        calls.append(delivery.id)
        if len(calls) == 1:
            raise Retry(at=frozen_clock.now() + timedelta(hours=1))

    app = shop(handlers)
    for number in (1, 2):
        deliver(app, APPROVED, "InvoiceApproved", message_id=f"m{number}")
        get_state(app).handle_due()

    assert calls == [1, 2]
    (first,) = details(get_state(app).inbox, [1])[0].runs
    assert first.state == "discarded"
