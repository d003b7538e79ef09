"""States of an inbox, with what a person would say of each: on every page and in every output the same."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from billhook.clock import SystemClock
from billhook.inbox import Counted, HandlerLimits, Inbox, RunOptions, RunState, WorkerRecord
from billhook.inbox.operating.holds import hold_worker
from billhook.inbox.operating.operations import discard, erase, replay
from billhook.inbox.operating.postpone import postpone
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import IssueState, change_issue, list_issues
from billhook.metrics import metrics_text
from support.inbox_view import incoming
from support.runs import at, claim, failed, handled, planned, settle

NOW = 3_600
"""When it is looked at, in seconds after noon."""
MINUTE, HOUR = 60, 3_600


@dataclass
class Expected:
    """What is shown of a state; `tiles` are those that are no quiet 0, `through` by handler."""

    sentence: str
    level: str
    tiles: dict[str, tuple[str, str]] = field(default_factory=dict)
    through: dict[str, str] = field(default_factory=dict)
    build: Callable[[Inbox], object] = lambda inbox: None
    has_worker: bool = True


STATES: dict[str, Expected] = {}


def state(sentence, level, *, through=None, has_worker=True, **tiles):
    """Register a state; its name is that of the function that makes it."""

    def registered(build):
        named = {name.replace("_", " "): tile for name, tile in tiles.items()}
        STATES[build.__name__] = Expected(sentence, level, named, through or {}, build, has_worker)
        return build

    return registered


WELL = "All is well: nothing fails and nothing waits for long. The last delivery came {}."
KNOWN = "Nothing needs attention ({}), and nothing waits for long. The last delivery came {}."
LONG = "nothing waits for long", "what waits for long waits for {}, the last for {} UTC"


def look(inbox, seconds=NOW):
    """Find issues, as a worker does."""
    update_issues(inbox, at(seconds))


def change_issues(inbox, to, **more):
    inbox.record_worker(WorkerRecord("w", "worker", 2, at(0)), at(NOW - MINUTE))
    look(inbox, NOW - MINUTE)
    for one in list_issues(inbox):
        change_issue(inbox, one.id, to, at(NOW - MINUTE), who="ada", **more)


def retried(inbox, key, seconds, due, handler="book"):
    """A delivery whose handler failed, and is called again at `due`."""
    delivery_id = planned(inbox, handler, key=key, seconds=seconds, at=at(seconds))
    claims = claim(inbox, 1, seconds, only=delivery_id)
    settle(inbox, claims, RunState.DUE, seconds, due=due, group="bug", error="KeyError: 'a'")
    return delivery_id


def dead(inbox, key="dead", seconds=NOW - 30 * MINUTE, **more):
    return failed(inbox, key, seconds, handler="book", error="KeyError: 'a'", **more)


def settle_again(inbox, delivery_id, seconds):
    """Handle a run that is due."""
    settle(inbox, claim(inbox, 1, seconds, only=delivery_id), seconds=seconds)


# --- nothing is wrong ---------------------------------------------------------------------------------


@state("No delivery has been received yet.", "")
def an_empty_inbox(inbox):
    """Nothing."""


@state(WELL.format("10 min ago"), "good", accepted=("1", "quiet"))
def all_is_handled(inbox):
    handled(inbox, "k", NOW - 10 * MINUTE, handler="book")


@state(
    WELL.format("10 s ago"),
    "good",
    through={"book": ""},
    accepted=("1", "quiet"),
    not_finished=("1", "quiet"),
)
def a_delivery_that_just_came(inbox):
    planned(inbox, "book", seconds=NOW - 10, at=at(NOW - 10))


@state(WELL.format("10 min ago"), "good", accepted=("1", "quiet"))
def a_delivery_that_no_handler_has(inbox):
    planned(inbox, seconds=NOW - 10 * MINUTE, at=at(NOW - 10 * MINUTE))


@state(
    WELL.format("4 min ago"), "good", through={"book": "in 5 min"},
    accepted=("20", "quiet"), not_finished=("10", "quiet"),
)  # fmt: skip
def a_burst_that_is_soon_through(inbox):
    for number in range(20):
        planned(inbox, "book", key=f"k{number}", seconds=NOW - 4 * MINUTE, at=at(NOW - 4 * MINUTE))
    settle(inbox, claim(inbox, 10, NOW - MINUTE), seconds=NOW - MINUTE)


@state(
    WELL.replace(*LONG).format("a time that was named", "2026-01-22 13:00", "10 min ago"), "good",
    through={"book": "not before 2026-01-22 13:00", "mail": "not before 13:09"},
    accepted=("2", "quiet"), not_finished=("2", "quiet"),
)  # fmt: skip
def a_run_that_an_operator_has_put_off_for_a_week(inbox):
    one, other = (
        planned(inbox, handler, key=handler, seconds=NOW - 10 * MINUTE, at=at(NOW - 10 * MINUTE))
        for handler in ("book", "mail")
    )
    postpone(inbox, [one], at(NOW - MINUTE), at(NOW + 7 * 24 * HOUR))
    postpone(inbox, [other], at(NOW - MINUTE), at(NOW + 9 * MINUTE))


@state(
    WELL.format("10 min ago"), "good", through={"book": "not before 13:09"},
    accepted=("1", "quiet"), not_finished=("1", "quiet"),
)  # fmt: skip
def a_run_that_is_put_off_for_less_than_what_is_long(inbox):
    one = planned(inbox, "book", seconds=NOW - 10 * MINUTE, at=at(NOW - 10 * MINUTE))
    postpone(inbox, [one], at(NOW - MINUTE), at(NOW + 9 * MINUTE))


@state(WELL.format("10 min ago"), "good", accepted=("1", "quiet"))
def what_was_dead_is_discarded_and_erased(inbox):
    one = dead(inbox, seconds=NOW - 10 * MINUTE)
    look(inbox, NOW - 9 * MINUTE)
    erase(inbox, [one], at(NOW - 8 * MINUTE))
    look(inbox, NOW - 7 * MINUTE)


# --- bugs ---------------------------------------------------------------------------------------------


@state(
    "Needs attention: book fails: KeyError.", "warn", through={"book": "retried at 13:31"},
    accepted=("1", "quiet"), not_finished=("1", "quiet"),
)  # fmt: skip
def one_retry_waits(inbox):
    retried(inbox, "k", NOW - 30 * MINUTE, NOW + 31 * MINUTE)


@state(
    "Needs attention: book fails: KeyError.", "warn", through={"book": "all retried by 13:40"},
    accepted=("2", "quiet"), not_finished=("2", "quiet"),
)  # fmt: skip
def two_retries_wait(inbox):
    retried(inbox, "k", NOW - 30 * MINUTE, NOW + 31 * MINUTE)
    retried(inbox, "l", NOW - 20 * MINUTE, NOW + 40 * MINUTE)


@state(
    "Needs attention: 1 delivery is dead, book fails: KeyError.", "warn",
    accepted=("1", "quiet"), dead=("1", "warn"),
)  # fmt: skip
def one_is_dead(inbox):
    dead(inbox)


@state(
    "Needs attention: 1 delivery is dead.", "warn", accepted=("1", "quiet"), dead=("1", "warn"),
)  # fmt: skip
def one_is_dead_whose_issue_is_resolved(inbox):
    dead(inbox)
    change_issues(inbox, IssueState.RESOLVED)


@state(
    "Needs attention: 2 issues are live.", "warn",
    through={"book": "retried at 13:31", "mail": "retried at 13:32"},
    accepted=("2", "quiet"), not_finished=("2", "quiet"),
)  # fmt: skip
def two_bugs_are_live(inbox):
    retried(inbox, "k", NOW - 30 * MINUTE, NOW + 31 * MINUTE)
    one = planned(inbox, "mail", key="l", seconds=NOW - 60, at=at(NOW - 60))
    settle(
        inbox, claim(inbox, 1, NOW - 60, only=one), RunState.DUE, NOW - 60, due=NOW + 32 * MINUTE,
        group="other", error="OSError: 'x'",
    )  # fmt: skip


@state("Needs attention: book fails: KeyError.", "warn", accepted=("1", "quiet"))
def a_bug_of_five_minutes_ago_that_the_next_attempt_did_not_have(inbox):
    one = retried(inbox, "k", NOW - 5 * MINUTE, NOW - 4 * MINUTE)
    settle_again(inbox, one, NOW - 4 * MINUTE)


@state(KNOWN.format("1 issue is quiet", "30 min ago"), "good", accepted=("1", "quiet"))
def a_quiet_bug(inbox):
    one = retried(inbox, "k", NOW - 30 * MINUTE, NOW - 29 * MINUTE)
    look(inbox, NOW - 29.5 * MINUTE)
    settle_again(inbox, one, NOW - 29 * MINUTE)


@state(KNOWN.format("1 issue is quiet", "30 min ago"), "good", accepted=("1", "quiet"))
def a_bug_that_was_mended_and_whose_dead_were_replayed(inbox):
    one = dead(inbox)
    look(inbox, NOW - 29 * MINUTE)
    replay(inbox, [one], at(NOW - 20 * MINUTE))
    settle_again(inbox, one, NOW - 20 * MINUTE)


@state(
    "Needs attention: book fails: KeyError.", "warn", through={"book": ""},
    accepted=("1", "quiet"), not_finished=("1", "quiet"),
)  # fmt: skip
def a_bug_whose_dead_are_replayed_and_wait_for_a_worker(inbox):
    one = dead(inbox)
    look(inbox, NOW - 29 * MINUTE)
    replay(inbox, [one], at(NOW - MINUTE))


@state(
    "Needs attention: mail fails: OSError.", "warn", through={"mail": "retried at 13:32"},
    accepted=("2", "quiet"), not_finished=("1", "quiet"),
)  # fmt: skip
def one_quiet_bug_and_one_that_is_live(inbox):
    a_quiet_bug(inbox)
    one = planned(inbox, "mail", key="l", seconds=NOW - 60, at=at(NOW - 60))
    settle(
        inbox, claim(inbox, 1, NOW - 60, only=one), RunState.DUE, NOW - 60, due=NOW + 32 * MINUTE,
        group="other", error="OSError: 'x'",
    )  # fmt: skip


@state(
    KNOWN.replace(*LONG).format("1 issue is acknowledged", "its time", "13:31", "30 min ago"),
    "good", through={"book": "retried at 13:31"},
    accepted=("1", "quiet"), not_finished=("1", "quiet"),
)  # fmt: skip
def a_bug_that_is_worked_on(inbox):
    one_retry_waits(inbox)
    change_issues(inbox, IssueState.ACKNOWLEDGED)


@state(
    KNOWN.replace(*LONG).format("1 issue is snoozed", "its time", "13:31", "30 min ago"),
    "good", through={"book": "retried at 13:31"},
    accepted=("1", "quiet"), not_finished=("1", "quiet"),
)  # fmt: skip
def a_bug_that_is_snoozed(inbox):
    one_retry_waits(inbox)
    change_issues(inbox, IssueState.SNOOZED, until=at(NOW + HOUR))


@state(
    "Needs attention: 1 delivery is dead.", "warn", accepted=("1", "quiet"), dead=("1", "warn"),
)  # fmt: skip
def one_is_dead_of_a_bug_that_is_worked_on(inbox):
    dead(inbox)
    change_issues(inbox, IssueState.ACKNOWLEDGED)


@state(KNOWN.format("1 issue is quiet", "30 min ago"), "good", accepted=("1", "quiet"))
def what_was_dead_is_discarded(inbox):
    one = dead(inbox)
    look(inbox, NOW - 29 * MINUTE)
    discard(inbox, [one], "no such invoice", at(NOW - 20 * MINUTE))


# --- what waits ---------------------------------------------------------------------------------------


@state(
    "Needs attention: a delivery has waited for a worker for 11 min.", "warn", through={"book": ""},
    accepted=("1", "quiet"), not_finished=("1", "warn"),
)  # fmt: skip
def a_delivery_that_no_worker_takes(inbox):
    planned(inbox, "book", seconds=NOW - 11 * MINUTE, at=at(NOW - 11 * MINUTE))


@state(
    "Needs attention: 1 handler is paused: book.", "warn", through={"book": ""},
    accepted=("3", "quiet"), not_finished=("3", "quiet"),
)  # fmt: skip
def a_paused_handler(inbox):
    for number in range(3):
        planned(inbox, "book", key=f"k{number}", seconds=NOW - 20 * MINUTE, at=at(NOW - 20 * MINUTE))
    inbox.pause_handler("book", None, at(NOW - 20 * MINUTE))


@state(
    "Needs attention: a delivery has waited for 12 min: book is at its limit.", "warn",
    through={"book": "in 5 min"}, accepted=("10", "quiet"), not_finished=("5", "warn"),
)  # fmt: skip
def a_handler_that_waits_for_its_rate(inbox):
    limits = {"book": HandlerLimits(("book",), rate=(1, 60.0))}
    inbox.limits = lambda: limits
    for number in range(10):
        planned(inbox, "book", key=f"k{number}", seconds=NOW - 12 * MINUTE, at=at(NOW - 12 * MINUTE))
    for minutes in (4, 3, 2, 1, 0):
        settle(inbox, claim(inbox, 10, NOW - minutes * MINUTE - 1, limits), seconds=NOW - minutes * MINUTE)


@state(
    "Needs attention: book fails: KeyError.", "warn", through={"book": "after 13:31"},
    accepted=("3", "quiet"), not_finished=("3", "quiet"),
)  # fmt: skip
def an_order_that_waits_for_the_retry_of_its_first(inbox):
    for number in range(3):
        planned(
            inbox, "book", key=f"k{number}", seconds=NOW - 30 * MINUTE, at=at(NOW - 30 * MINUTE),
            options=RunOptions(order_key="inv_1"),
        )  # fmt: skip
    claims = claim(inbox, 3, NOW - 30 * MINUTE)
    settle(
        inbox, claims, RunState.DUE, NOW - 30 * MINUTE, due=NOW + 31 * MINUTE, group="bug",
        error="KeyError: 'a'",
    )  # fmt: skip


# --- workers ------------------------------------------------------------------------------------------


@state("Needs attention: no worker is running.", "bad", has_worker=False, workers=("0", "bad"))
def an_inbox_that_never_had_a_worker(inbox):
    """Nothing."""


@state(
    "Needs attention: no worker has been seen for 20 min, a delivery has waited for a worker for 19 min.",
    "bad", has_worker=False, through={"book": ""},
    accepted=("1", "quiet"), not_finished=("1", "warn"), workers=("0", "bad"),
)  # fmt: skip
def no_worker_is_alive(inbox):
    inbox.record_worker(WorkerRecord("w", "worker", 1, at(0)), at(NOW - 20 * MINUTE))
    planned(inbox, "book", seconds=NOW - 19 * MINUTE, at=at(NOW - 19 * MINUTE))


@state(
    "Needs attention: workers die again and again: 5 in 2 min, soon after their start, while no handler "
    "runs.",
    "bad",
    accepted=("1", "quiet"), worker=("1", "bad"),
)  # fmt: skip
def workers_that_die_one_after_another(inbox):
    handled(inbox, "k", NOW - 3 * MINUTE, handler="book")
    for number in range(5):
        began = NOW - 120 + 10 * number
        inbox.record_worker(WorkerRecord(f"w{number}", "worker", 1, at(began)), at(began))
        inbox.record_worker(WorkerRecord(f"w{number}", "worker", 1, at(began)), at(began + 1))


@state(
    "Needs attention: a worker died in the last 15 minutes.",
    "warn",
    accepted=("1", "quiet"),
    worker=("1", "warn"),
)
def a_worker_that_died_beside_another(inbox):
    handled(inbox, "k", NOW - 3 * MINUTE, handler="book")
    inbox.record_worker(WorkerRecord("lost", "worker", 1, at(0)), at(NOW - 3 * MINUTE))


# --- deliveries ---------------------------------------------------------------------------------------


@state(
    "Needs attention: 1 delivery is quarantined.", "warn", accepted=("1", "quiet"), quarantined=("1", "warn")
)
def one_is_quarantined(inbox):
    planned(inbox, error='{"error": "no JSON"}', seconds=NOW - 60, at=at(NOW - 60))


@state(
    "Needs attention: 1 delivery is quarantined.", "warn", accepted=("1", "quiet"), quarantined=("1", "warn")
)
def one_contradicts_another(inbox):
    handled(inbox, "k", NOW - 120, handler="book")
    inbox.put(incoming("k", body=b"[]", at=at(NOW - 60)))


@state(
    "Needs attention: 3 deliveries could not be stored in this hour and the one before.", "bad",
    accepted=("1", "quiet"),
)  # fmt: skip
def some_were_not_stored(inbox):
    handled(inbox, "k", NOW - 120, handler="book")
    for _ in range(3):
        inbox.count(Counted.REFUSED, at(NOW - 60), source="default", cause="deadline")
    inbox._counts.close()


@state(WELL.format("2 min ago"), "good", accepted=("1", "quiet"))
def a_stranger_sends_requests_that_are_refused(inbox):
    handled(inbox, "k", NOW - 120, handler="book")
    for _ in range(200):
        inbox.count(Counted.REFUSED, at(NOW - 60), source="default", cause="malformed")
    inbox._counts.close()


@state(
    "Needs attention: PingTest has stopped coming: its longest gap in 30 days was at most 1 d 1 h.", "warn"
)
def a_type_that_has_stopped(inbox):
    for days in range(3, 12):
        handled(inbox, f"k{days}", NOW - days * 24 * HOUR, handler="book")


@state(
    "Needs attention: a delivery has waited for a worker for 10 min 20 s, more deliveries come than are "
    "handled.",
    "warn", through={"book": "in 32 min"},
    accepted=("150", "quiet"), not_finished=("130", "warn"),
)  # fmt: skip
def a_backlog_that_grows(inbox):
    for number in range(150):
        came = NOW - 12 * MINUTE + 5 * number
        planned(inbox, "book", key=f"k{number}", seconds=came, at=at(came))
    settle(inbox, claim(inbox, 20, NOW - 3 * MINUTE), seconds=NOW - 3 * MINUTE)


@state("Needs attention: 2 handlers are paused.", "warn")
def paused_handlers_for_which_nothing_waits(inbox):
    handled(inbox, "k", NOW - 26 * HOUR, handler="book")
    for name in ("book", "mail"):
        inbox.pause_handler(name, "the bank is down", at(0))


@state("Needs attention: signed deliveries are refused.", "warn", accepted=("1", "quiet"))
def a_secret_that_was_changed_at_the_sender(inbox):
    handled(inbox, "k", NOW - 40 * MINUTE, handler="book")
    for _ in range(60):
        inbox.count(Counted.REFUSED, at(NOW - 60), source="default", cause="mismatch")
    inbox._counts.close()


@state(WELL.format("1 h ago"), "good", accepted=("1", "quiet"))
def a_few_requests_that_match_no_secret(inbox):
    handled(inbox, "k", NOW - HOUR, handler="book")
    for _ in range(6):
        inbox.count(Counted.REFUSED, at(NOW - 60), source="default", cause="mismatch")
    inbox._counts.close()


@state(
    "No delivery has been stored yet: 6 signatures matched no secret, and no delivery was accepted in 24 "
    "hours.",
    "warn",
)
def only_requests_that_match_no_secret_have_come(inbox):
    for _ in range(6):
        inbox.count(Counted.REFUSED, at(NOW - 60), source="default", cause="mismatch")
    inbox._counts.close()


@state(
    "Nothing waits for long, but 6 genuine deliveries were refused: the signed time is 600 s behind this "
    "clock on average. The last delivery came 1 h ago.",
    "warn", accepted=("1", "quiet"),
)  # fmt: skip
def the_clock_is_wrong_by_ten_minutes(inbox):
    handled(inbox, "k", NOW - HOUR, handler="book")
    for _ in range(6):
        inbox.count(Counted.REFUSED, at(NOW - 60), source="default", cause="stale", duration_seconds=600)
    inbox._counts.close()


@state(
    "Needs attention: 1 call of book has not returned for 25 min.", "warn",
    through={"book": ""}, accepted=("1", "quiet"), not_finished=("1", "quiet"),
)  # fmt: skip
def a_call_that_does_not_return(inbox):
    planned(inbox, "book", at=at(NOW - 25 * MINUTE), seconds=NOW - 25 * MINUTE)
    claim(inbox, 1, NOW - 25 * MINUTE)


@state(
    "Needs attention: the only worker is held, and starts no run.", "warn",
    accepted=("1", "quiet"), not_finished=("1", "quiet"),
)  # fmt: skip
def a_worker_that_is_held_and_forgotten(inbox):
    inbox.put(incoming("k", at=at(NOW - MINUTE)))
    hold_worker(inbox, "w", at(NOW - 2 * MINUTE))


def shown(text: str) -> str:
    """HTML as a text in one line."""
    text = text.replace("<wbr>", "").replace("</bdi><bdi>", "")
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


@pytest.mark.parametrize("name", STATES)
def test_each_page_and_output_says_what_a_person_would(site, monkeypatch, name):
    expected = STATES[name]
    monkeypatch.setattr(SystemClock, "now", staticmethod(lambda: at(NOW)))
    made = site()
    if expected.has_worker:
        made.inbox.record_worker(WorkerRecord("w", "worker", 2, at(0)), at(0))
    expected.build(made.inbox)
    if expected.has_worker:
        made.inbox.record_worker(WorkerRecord("w", "worker", 2, at(0)), at(NOW))
    look(made.inbox)

    page = made.get("").text
    banner = re.search(r'<p class="banner (\w*)">(.*?)</p>', page, re.DOTALL)
    tiles = {
        text: (number, tone)
        for tone, number, text in re.findall(
            r'class="figure (\w+)" href="[^"]+"><strong>([^<]+)</strong> <span>([^<]+)</span>', page
        )
    }
    through = {
        shown(row[0]): shown(row[1])
        for row in re.findall(
            r'<td class="title">((?:(?!</td>).)*)</td>\s*(?:<td class="n (?:(?!</td>).)*</td>\s*)*'
            r'<td class="wide"><svg.*?data-label="through">(.*?)</td>',
            page, re.DOTALL,
        )
    }  # fmt: skip
    health_tone, health = re.search(
        r'<p class="banner (\w*)">(.*?)</p>', made.get("health").text, re.DOTALL
    ).groups()
    run = made.app.test_cli_runner().invoke
    document = json.loads(run(args=["billhook", "status", "--json"]).stdout)
    status = shown(run(args=["billhook", "status"], env={"COLUMNS": "300"}).stdout)
    metrics = metrics_text(made.inbox)

    found = (shown(banner[2]).replace(" ,", ",").replace(" .", "."), banner[1])
    assert found == (expected.sentence, expected.level)
    workers = {"worker": ("1", "quiet")} if expected.has_worker else {}
    usual = {
        "accepted": ("0", "quiet"),
        **dict.fromkeys(("not finished", "dead", "quarantined"), ("0", "quiet")),
    }
    assert tiles == {**usual, **workers, **expected.tiles}
    assert through == expected.through
    assert shown(health).startswith(expected.sentence)
    if expected.level in ("bad", "warn"):  # the set-up may be worse
        assert health_tone in ("bad", expected.level)
    assert document["summary"] == expected.sentence
    assert [document[key] for key in ("unfinished", "dead", "quarantined")] == [
        int(tiles[key][0]) for key in ("not finished", "dead", "quarantined")
    ]
    parts = [expected.sentence]
    if expected.sentence.startswith("Needs attention: "):
        parts = [one["text"] for one in document["conditions"] if one["severity"] != "note"]
        assert f"Needs attention: {', '.join(parts)}." == expected.sentence
    assert [one for one in [*parts, *expected.through.values()] if one not in status] == []
    holding = set(re.findall(r'billhook_condition\{name="([a-z-]+)"\} 1\.0', metrics))
    assert holding == {one["name"] for one in document["conditions"]}
