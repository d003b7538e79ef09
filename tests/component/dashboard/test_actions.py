"""What the buttons do: replay, discard, erase, pause and resume; each is a row of the record."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from billhook.dashboard import handlers as pages
from billhook.inbox import WorkerRecord
from billhook.inbox.operating.actions import list_actions
from billhook.inbox.operating.operations import replay
from billhook.inbox.reading.deliveries import details
from billhook.inbox.watching.issues import failing_delivery_ids
from support.inbox_view import change, rows, value
from support.signing import APPROVED


@pytest.fixture
def failing(site):
    """A site with three deliveries whose handler failed."""
    made = site(BILLHOOK_RETRY_SCHEDULE_SECONDS=[3600])  # however long the test takes
    made.broken.append(KeyError("no ledger"))
    for number in range(3):
        made.deliver(APPROVED.replace(b"inv_1", b"inv_%d" % number))
    return made


def status(made, delivery_id: int) -> str:
    return details(made.inbox, [delivery_id])[0].status


def recorded(made) -> list[tuple[str, str, str, int | None]]:
    return [(one.who, one.what, one.which, one.deliveries) for one in list_actions(made.inbox, 10)]


# --- replay ---------------------------------------------------------------------------------------


def test_marked_deliveries_are_counted_first_and_then_replayed(failing):
    failing.broken.clear()

    preview = failing.post("deliveries/replay", id=["1", "3"], scope="some")
    nothing_yet = [status(failing, one) for one in (1, 2, 3)]
    done = failing.act("deliveries/replay/confirmed", id=["1", "3"])
    failing.state.handle_due()

    assert "Replay 2 deliveries?" in preview.text
    assert "flask --app shop billhook deliveries replay 1 3<" in preview.text
    assert "2 of them have something to replay: 2 runs will be due again" in preview.text
    assert nothing_yet == ["retrying"] * 3
    assert done == "Replayed: 2 runs are due again."
    assert [status(failing, one) for one in (1, 2, 3)] == ["done", "retrying", "done"]
    assert recorded(failing) == [("alice", "replay", "1, 3", 2)]


def test_all_that_the_filters_select_is_counted_first_and_then_replayed(failing):
    failing.broken.clear()
    failing.deliver(b"{}", "PingTest")

    preview = failing.post("deliveries/replay", scope="all", type="InvoiceApproved", error="LEDGER")
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="(\w+)"', preview.text.partition("<main")[2]))
    done = failing.act(
        "deliveries/replay/confirmed", **{k: v for k, v in fields.items() if k != "csrf_token"}
    )
    failing.state.handle_due()

    assert "Replay 3 deliveries?" in preview.text
    assert "billhook deliveries replay --type InvoiceApproved --error LEDGER<" in preview.text
    assert done == "Replayed: 3 runs are due again."
    assert [status(failing, one) for one in (1, 2, 3)] == ["done"] * 3
    assert recorded(failing) == [("alice", "replay", "--type InvoiceApproved --error …: 1-3", 3)]


def test_what_has_grown_since_it_was_counted_is_asked_about_again(failing):
    preview = failing.post("deliveries/replay", scope="all", since="2h")
    kept = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', preview.text.partition("<main")[2]))
    kept.pop("csrf_token")
    failing.deliver(APPROVED.replace(b"inv_1", b"inv_9"))

    asked = failing.post("deliveries/replay/confirmed", **kept)
    nothing_yet = recorded(failing)
    done = failing.act("deliveries/replay/confirmed", **{**kept, "counted": "4"})

    assert kept["counted"] == "3"
    assert datetime.fromisoformat(kept["since"]) < datetime.now(UTC) - timedelta(hours=2)
    assert asked.status_code == 200
    assert "Replay 4 deliveries?" in asked.text
    assert "the filters select more than when they were counted" in asked.text
    assert nothing_yet == []
    assert done == "Replayed: 4 runs are due again."


def test_all_that_failed_since_a_time_is_counted_first_and_then_replayed(failing):
    failing.broken.clear()
    form = failing.get("failures").text.partition("Replay all that failed since")[2].partition("</form>")[0]

    fields = {"scope": "all", "failed-since": "2h", "handler": "shop.book", "type": ""}
    preview = failing.post("deliveries/replay", **fields)
    kept = dict(
        re.findall(r'type="hidden" name="([\w-]+)" value="([^"]*)"', preview.text.partition("<main")[2])
    )
    none = failing.post("deliveries/replay", **{**fields, "failed-since": "2999-01-01"})
    of_another = failing.post("deliveries/replay", **{**fields, "handler": "shop.mail"})
    kept.pop("csrf_token")
    done = failing.act("deliveries/replay/confirmed", **kept)
    failing.state.handle_due()

    assert re.findall('name="([a-z-]+)"', form) == list(fields)
    assert "<option>shop.book</option>" in form
    assert "Replay 3 deliveries?" in preview.text
    shown = " ".join(html.unescape(re.sub("<[^>]+>", "", preview.text)).split())
    assert re.search(r"What failed since 20[\d-]+ [\d:]+ UTC of shop\.book, and is dead or waits", shown)
    command = r"deliveries replay --failed-since 20\S+ --handler shop\.book"
    assert re.search(command, shown) or re.search(r"replay --handler shop\.book --failed-since 20\S+", shown)
    assert "Replay 0 deliveries?" in none.text
    assert "Replay 0 deliveries?" in of_another.text
    assert done == "Replayed: 3 runs are due again."
    assert [status(failing, one) for one in (1, 2, 3)] == ["done"] * 3


def test_at_a_rate_each_run_is_due_at_its_own_time(failing, where):
    before = datetime.now(UTC)

    failing.post("deliveries/replay/confirmed", scope="all", rate="0.5")

    due = [
        datetime.fromisoformat(one).replace(tzinfo=UTC)
        for (one,) in rows(where, "SELECT due_at FROM run WHERE state = 'due' ORDER BY delivery_id")
    ]
    assert [after - first for first, after in pairwise(due)] == [timedelta(seconds=2)] * 2
    assert timedelta(0) <= due[0] - before < timedelta(seconds=60)


CONFIRMED, RESEND = "deliveries/replay/confirmed", "deliveries/1/resend"
REFUSED = [
    *((CONFIRMED, {"scope": "all", "rate": rate}, "The rate is a number of runs per second")
      for rate in ("0", "-1", "nan", "inf", "fast", "1e9")),
    *((path, fields, told) for path in ("deliveries/replay", CONFIRMED) for fields, told in (
        ({}, "No delivery is selected"),
        ({"scope": "some"}, "No delivery is selected"),
        ({"id": "x"}, "An id of a delivery is a number"),
        ({"scope": "all", "since": "never"}, "The filters cannot be read"),
    )),
    ("deliveries/1/replay", {"handler": "shop.other"}, "has no run of that handler"),
    *(("deliveries/1/discard", {"reason": reason}, "Give a reason") for reason in ("", " \0 ")),
    ("handlers/pause", {"handler": "shop.other"}, "no handler of that name"),
    (RESEND, {"handler": "shop.book", "body": "{}"}, "invoiceId: Field required"),
    (RESEND, {"handler": "shop.none", "body": APPROVED.decode()}, "no handler 'shop.none'"),
]  # fmt: skip


def test_a_form_that_cannot_be_followed_is_refused_with_the_reason_and_changes_nothing(failing):
    for path, fields, told in REFUSED:
        response = failing.post(path, **fields)

        assert response.status_code == 400, (path, fields)
        assert told in html.unescape(response.text)
    assert {one.what for one in list_actions(failing.inbox, 10)} <= {"resend"}
    assert [status(failing, one) for one in (1, 2, 3)] == ["retrying"] * 3
    assert failing.inbox.paused_handlers() == []
    assert details(failing.inbox, [4]) == []


def test_more_than_a_request_can_take_is_refused(failing, monkeypatch):
    monkeypatch.setattr("billhook.dashboard.deliveries.MOST_REPLAYED", 2)

    preview = failing.post("deliveries/replay", scope="all")
    response = failing.post("deliveries/replay/confirmed", scope="all")

    assert "More than 2 deliveries match" in preview.text
    assert response.status_code == 400
    assert recorded(failing) == []


def test_what_failed_of_one_delivery_or_one_handler_is_replayed(failing):
    failing.broken.clear()

    failed = failing.act("deliveries/1/replay")
    again = failing.act("deliveries/2/replay", handler="shop.mail", again="1", confirmed="1")
    nothing = failing.act("deliveries/1/replay")

    assert failed == "Replayed: 1 run is due again."
    assert again == "Replayed: 1 run is due again."
    assert nothing == "Nothing was replayed: no handler of these deliveries failed."
    assert [each[1:3] for each in recorded(failing)][1:] == [
        ("replay", "handler shop.mail: 2"),
        ("replay", "1"),
    ]


def test_a_run_that_succeeded_after_its_page_was_shown_is_not_made_again(failing):
    failing.broken.clear()
    page = failing.get("deliveries/1").text
    fields = dict(
        re.findall(r'type="hidden" name="(\w+)" value="([^"]+)"', page.partition("<h2>Handlers")[2])
    )
    failing.post("deliveries/1/replay")
    failing.state.handle_due()

    late = failing.act("deliveries/1/replay", handler="shop.book")
    asked = failing.act("deliveries/1/replay", handler="shop.book", again="1", confirmed="1")

    assert fields["handler"] == "shop.mail"  # the last button, of the one that succeeded
    assert fields["again"] == "1"
    assert late == "Nothing was replayed: no handler of these deliveries failed."
    assert asked == "Replayed: 1 run is due again."


def test_a_run_that_succeeded_is_made_again_only_after_a_page_that_says_so(failing):
    before = recorded(failing)

    page = failing.post("deliveries/1/replay", handler="shop.mail", again="1")

    assert page.status_code == 200
    assert "<b><bdi>shop.mail</bdi></b> succeeded" in page.text
    assert "also for <code>delivery.once()</code>" in page.text
    assert recorded(failing) == before
    assert 'name="confirmed" value="1"' in page.text


def test_an_issue_replays_no_run_that_succeeds_meanwhile(failing, monkeypatch):
    issue = failing.issues()[0].id
    failing.broken.clear()

    def found_before_a_worker_came(*arguments):
        batches = list(failing_delivery_ids(*arguments))
        replay(failing.inbox, [1], datetime.now(UTC))  # as if its retry were due
        failing.state.handle_due()
        yield from batches

    monkeypatch.setattr(pages, "failing_delivery_ids", found_before_a_worker_came)

    done = failing.act(f"failures/{issue}/replay")

    assert status(failing, 1) == "done"
    assert done.startswith("Replayed: 2 runs are due again.")


def test_an_issue_is_replayed_and_no_other(failing):
    failing.broken[:] = [RuntimeError("something else")]
    other = failing.deliver(APPROVED.replace(b"inv_1", b"inv_9"))
    failing.broken.clear()
    (issue,) = [one for one in failing.issues() if "KeyError" in one.title]

    done = failing.act(f"failures/{issue.id}/replay", rate="1000")
    gone = failing.post(f"failures/{'0' * 12}/replay")

    assert re.fullmatch(
        r"Replayed: 3 runs are due again\. The last of them is due at 20[\d-]+ [\d:]+ UTC\. "
        r"The issue resolves itself when none of its runs is dead or retried, after an hour of quiet\.",
        done,
    )
    assert status(failing, other) == "retrying"
    assert gone.status_code == 404
    assert recorded(failing) == [("alice", "replay", f"issue {issue.id}: 1-3", 3)]


def test_an_issue_has_one_next_step_that_follows_from_what_was_done(failing):
    (issue,) = failing.issues()
    path = f"failures/{issue.id}"

    def steps():
        page = failing.get(path).text.partition("What to do")[2].partition("newest failure")[0]
        primary = re.findall(r'<details class="act primary"><summary>([^<:]+)', page)
        return primary or re.findall(r'<button class="primary">(Resume[^<]+)', page)

    found = [steps()]
    failing.act(f"{path}/ack")
    found.append(steps())
    failing.act("handlers/pause", handler="shop.book")
    found.append(steps())
    failing.act("handlers/resume", handler="shop.book")
    failing.act(f"{path}/resolve")
    found.append(steps())

    assert found == [
        ["Acknowledge"],
        ["Replay 3 runs before their retry"],
        ["Resume the handler"],
        ["Replay 3 runs before their retry"],
    ]


def steps_of(page: str) -> list[str]:
    """The buttons of an issue's page in their order."""
    shown = page.partition("What to do")[2].partition("The newest failure")[0]
    return re.findall(r"<summary>([^<:]+)", shown)


def test_what_is_dead_is_replayed_before_anything_is_said_of_its_issue(site):
    made = site(BILLHOOK_RETRY_SCHEDULE_SECONDS=[])
    made.broken.append(KeyError("no ledger"))
    for number in range(2):
        made.deliver(APPROVED.replace(b"inv_1", b"inv_%d" % number))
    (issue,) = made.issues()
    path = f"failures/{issue.id}"

    before, shown = made.get(path).text, " ".join(made.text(path).split())
    made.broken.clear()
    at_a_rate = made.act(f"{path}/replay", rate="0.5")
    again = made.act(f"{path}/replay")
    made.state.handle_due()
    after = " ".join(made.text(path).split())

    assert steps_of(before)[:2] == ["Replay 2 dead runs", "Acknowledge"]
    assert re.search(
        r"2 runs of shop\.book; [\d.]+ a minute lately: all are through in \d+ (s|min|ms)", shown
    )
    assert "resolves when its 2 runs are no longer dead or retried, after an hour of quiet" in shown
    assert re.search(r"due again\. The last of them is due at 20[\d-]+ [\d:]+ UTC\. The issue", at_a_rate)
    assert again == "Nothing was replayed: no handler of these deliveries failed."
    assert steps_of(made.get(path).text)[0] == "Acknowledge"
    assert re.search(r"resolves at [\d :-]+, unless it happens again", after)


def test_a_quarantined_delivery_is_replayed_before_anything_is_said_of_its_issue(site):
    made = site()
    made.deliver(b"{", "InvoiceApproved")
    (issue,) = made.issues()

    assert steps_of(made.get(f"failures/{issue.id}").text)[:2] == ["Replay 1 delivery", "Acknowledge"]


def test_a_failed_run_links_to_its_issue_once_there_is_one(failing):
    before = failing.get("deliveries/1").text
    (issue,) = failing.issues()

    assert "/failures/" not in before.partition("<main")[2]
    after = failing.get("deliveries/1").text
    assert re.findall(r'/failures/(\w+)">(issue|Its issue)<', after) == [
        (issue.id, "issue"),
        (issue.id, "Its issue"),
    ]


def test_an_issue_is_acknowledged_snoozed_and_resolved(failing):
    (issue,) = failing.issues()
    path = f"failures/{issue.id}"

    told = [
        failing.act(f"{path}/ack", to="grace", why=" ticket\n7 "),
        failing.get("failures").text.count("grace works on it: ticket 7"),
        failing.act(f"{path}/snooze", duration="2h"),
        failing.act(f"{path}/resolve", why="", to="grace"),
    ]

    assert told[0] == "The issue is acknowledged."
    assert re.fullmatch(r"The issue is snoozed until 20\d\d-\d\d-\d\d \d\d:\d\d UTC\.", told[2])
    assert (told[1], told[3]) == (1, "The issue is resolved.")
    assert [row[:3] for row in recorded(failing)] == [
        ("alice", verb, f"issue {issue.id}") for verb in ("resolve", "snooze", "ack")
    ]
    assert failing.get("actions").text.count(f'/failures/{issue.id}"><bdi>KeyError: …</bdi></a>') == 3
    assert (failing.issues()[0].who, failing.issues()[0].why) == ("alice", None)
    for fields in ({"duration": "soon"}, {"more": "0"}, {"more": "many"}, {"more": "1001"}, {"more": "-1"}):
        assert failing.post(f"{path}/snooze", **fields).status_code == 400
    assert failing.act(f"{path}/snooze", more="10").startswith("The issue is snoozed until 10 more, or 20")
    assert re.search(r"snoozed\s+until 10 more, or 20", failing.text(path))
    assert failing.post(f"{path}/delete").status_code == 404


# --- a handler that is not there ------------------------------------------------------------------

LEFT = (
    "of shop.gone {} left as before: no handler has this name; if it has a new name or module, add "
    'aliases=["shop.gone"] there, or have another handler take over its runs with `flask --app shop billhook '
    "deliveries replay --handler shop.gone --to NEW`"
)


@pytest.fixture
def renamed(failing, where):
    """The same site; the handler that failed was renamed after that."""
    change(where, "UPDATE run SET handler = 'shop.gone' WHERE handler = 'shop.book'")
    failing.broken.clear()
    return failing


def test_a_run_of_a_handler_that_is_gone_is_left_as_it_is_and_the_page_says_why(renamed, where):
    (issue,) = renamed.issues()
    before = rows(where, "SELECT * FROM run ORDER BY id")

    preview = renamed.post("deliveries/replay", id=["1", "3"], scope="some")
    done = {
        path: renamed.act(path, **fields)
        for path, fields in (
            ("deliveries/replay/confirmed", {"id": ["1", "3"]}),
            (f"failures/{issue.id}/replay", {}),
            ("deliveries/1/replay", {}),
            ("deliveries/1/replay", {"handler": "shop.gone"}),
        )
    }

    assert "0 of them have something to replay" in preview.text
    assert f"2 runs {LEFT.format('are')}" in html.unescape(re.sub("<[^>]+>", "", preview.text))
    for path, told in done.items():
        runs = "2 runs are" if "confirmed" in path else "3 runs are" if "failures" in path else "1 run is"
        runs, verb = runs.rsplit(" ", 1)
        assert told.startswith(f"Nothing was replayed. {runs} {LEFT.format(verb)}")
    assert rows(where, "SELECT * FROM run ORDER BY id") == before


def test_the_issue_offers_that_another_handler_takes_its_runs_over(renamed, where):
    (issue,) = renamed.issues()
    path = f"failures/{issue.id}"

    page, shown = renamed.get(path).text, renamed.text(path)
    done = renamed.act(f"{path}/replay", to="shop.book")
    again = renamed.act(f"{path}/replay", to="shop.book")

    assert re.findall("<option>([^<]+)", page) == ["shop.book", "shop.mail"]
    assert "no handler has this name; if it has a new name" in shown
    assert done.startswith("Replayed: 3 runs are due again. The issue resolves itself")
    assert again == "Nothing was replayed: no handler of these deliveries failed."
    names = "SELECT handler, state FROM run WHERE handler != 'shop.mail'"
    assert rows(where, names) == [("shop.book", "due")] * 3
    assert recorded(renamed)[1] == ("alice", "replay", f"issue {issue.id} --to shop.book: 1-3", 3)
    renamed.state.handle_due()
    assert status(renamed, 1) == "done"


def test_the_other_handler_has_to_be_there_and_passes_over_what_it_has_had(renamed, where):
    (issue,) = renamed.issues()
    path = f"failures/{issue.id}/replay"

    passed = renamed.act(path, to="shop.mail")

    assert passed == "Nothing was replayed. 3 deliveries passed over: shop.mail has a run of it already."
    assert renamed.post(path, to="shop.nobody").status_code == 400
    assert renamed.post(path, to="shop.gone").status_code == 400
    assert rows(where, "SELECT DISTINCT state FROM run WHERE handler = 'shop.gone'") == [("due",)]


def test_the_page_of_a_handler_that_is_gone_says_what_to_do_with_its_runs(renamed):
    shown = renamed.text("handler?name=shop.gone")

    assert 'Its runs fail: if it has a new name or module, add aliases=["shop.gone"] there' in shown
    assert "Its runs fail" not in renamed.text("handler?name=shop.mail")


# --- postpone -------------------------------------------------------------------------------------


def test_a_delivery_is_put_off_for_a_time_or_until_one_and_called_again_at_once(failing):
    for_a_time = failing.act("deliveries/1/postpone", until="2d")
    shown = " ".join(failing.text("deliveries/1").split())
    until = failing.act("deliveries/1/postpone", until="2h")
    failing.broken.clear()
    early = failing.state.handle_due()
    at_once = failing.act("deliveries/1/postpone", until="0s")
    failing.state.handle_due()
    nothing = failing.act("deliveries/1/postpone", until="2h")

    assert re.fullmatch(r"Its run is not called before 20[\d-]+ [\d:]+ UTC\.", for_a_time)
    assert re.search(r"not before 20[\d-]+ [\d:]+", shown)
    assert until < for_a_time
    assert early == 0
    assert at_once == "Its run is due at once."
    assert (status(failing, 1), status(failing, 2)) == ("done", "retrying")
    assert nothing == "Nothing was put off: no run of it is unfinished."
    assert recorded(failing)[-1] == ("alice", "postpone", "1", 1)


@pytest.mark.parametrize(
    ("until", "told"),
    [
        ("32d", "more than 31 days ahead"),
        ("2999-01-01", "more than 31 days ahead"),
        ("soon", "Give a duration"),
        ("", "Give a duration"),
        ("999999w", "Give a duration"),
    ],
)
def test_a_time_to_put_off_that_cannot_be_is_refused(failing, until, told):
    refused = failing.post("deliveries/1/postpone", until=until)

    assert refused.status_code == 400
    assert told in refused.text
    assert recorded(failing) == []


def test_a_replay_may_be_for_later_in_one_step(failing):
    failing.broken.clear()
    told = failing.act("deliveries/replay/confirmed", id="1", **{"not-before": "2h"})
    early = failing.state.handle_due()
    shown = " ".join(failing.text("deliveries/1").split())
    past = failing.post("deliveries/replay/confirmed", id="1", **{"not-before": "2020-01-01"})

    assert re.fullmatch(r"Replayed: 1 run is due again, not before 20[\d-]+ [\d:]+ UTC\.", told)
    assert early == 0
    assert re.search(r"not before 20[\d-]+ [\d:]+", shown)
    assert (past.status_code, "That time has passed" in past.text) == (400, True)
    assert re.fullmatch(r"--not-before 20[\d-]+T[\d:]+: 1", recorded(failing)[-1][2])


# --- discard, erase -------------------------------------------------------------------------------


def test_a_delivery_is_discarded_for_a_reason_of_one_line(failing):
    done = failing.act("deliveries/1/discard", reason=" done\n by hand ")
    again = failing.act("deliveries/1/discard", reason="again")

    assert done == "Discarded: its handlers are not called again."
    assert again == "Nothing was discarded: it is done."
    assert status(failing, 1) == "done"
    assert "done by hand" in failing.text("deliveries/1")


def test_the_content_of_a_delivery_is_erased(failing, where):
    refused = failing.act("deliveries/1/erase")
    left = value(where, "SELECT body FROM delivery WHERE id = 1")
    done = failing.act("deliveries/1/erase", discard="1")
    again = failing.act("deliveries/1/erase")

    assert refused == "Not erased: it is not finished. Discard it first."
    assert b"inv_0" in left
    assert done.startswith("Erased")
    assert value(where, "SELECT body FROM delivery WHERE id = 1") == b""
    assert again == "Nothing was erased: there is no content."
    assert "It is erased: only its key is kept." in failing.text("deliveries/1")
    assert [each[1:] for each in recorded(failing)][1] == ("erase", "1", 1)


# --- workers --------------------------------------------------------------------------------------


def test_a_worker_is_held_and_resumed(failing):
    now = datetime.now(UTC)
    failing.inbox.record_worker(WorkerRecord("w", "worker", 3, now, host="web-1", pid=7), now)
    failing.inbox.record_worker(WorkerRecord("c", "celery", 3, now, host="web-1", pid=8), now)

    before = failing.get("workers").text
    held = failing.act("workers/hold", owner="w")
    shown = " ".join(failing.text("workers").split())
    again = failing.act("workers/hold", owner="w")
    why = failing.act("workers/hold", owner="w", why="a <new>\n disk")
    with_why = " ".join(failing.text("workers").split())
    resumed = failing.act("workers/resume", owner="w")
    not_again = failing.act("workers/resume", owner="w")
    refused = [failing.post("workers/hold", owner=owner).status_code for owner in ("c", "unheard of")]

    assert before.count("<summary>Hold<") == 1  # Celery gives its workers their runs
    assert held == "web-1:7 starts no run from its next poll on."
    assert re.search(r"web-1 worker, pid 7 held just now", shown)
    assert again == "web-1:7 was held already."
    assert why == "web-1:7 was held already; its reason is the new one."
    assert "held just now: a <new> disk" in with_why
    assert resumed == "web-1:7 starts runs again."
    assert not_again == "web-1:7 was not held."
    assert refused == [400, 400]
    assert [row[1:3] for row in recorded(failing)] == [
        ("resume", "worker web-1:7"),
        ("hold", "worker web-1:7"),
        ("hold", "worker web-1:7"),
    ]


# --- handlers -------------------------------------------------------------------------------------


def test_a_handler_is_paused_with_a_reason_and_resumed(failing):
    paused = failing.act("handlers/pause", handler="shop.mail", why="the ledger\nis closed")
    shown = " ".join(failing.text("handler?name=shop.mail").split())
    resumed = failing.act("handlers/resume", handler="shop.mail")
    again = failing.act("handlers/resume", handler="shop.mail")

    assert paused == "shop.mail is paused: its deliveries wait."
    assert re.search(r"shop\.mail paused .*: the ledger is closed", shown)
    assert resumed == "shop.mail is resumed."
    assert again == "shop.mail was not paused."
    assert [each[1:] for each in recorded(failing)] == [
        ("resume", "shop.mail", None),
        ("pause", "shop.mail", None),
    ]


@pytest.mark.slow
def test_an_edited_body_goes_to_one_handler_as_a_delivery_of_its_own(failing):
    failing.broken.clear()
    body = APPROVED.decode().replace("inv_1", "inv_9")

    notice = failing.act("deliveries/1/resend", handler="shop.book", body=body)
    failing.state.handle_due()

    assert notice == "Stored, with the edited body, for shop.book."
    (edited,) = details(failing.inbox, [4])
    assert [(run.handler, run.state) for run in edited.runs] == [("shop.book", "succeeded")]
    assert "An operator edited its body, from delivery 1" in " ".join(failing.text("deliveries/4").split())
    assert recorded(failing)[0] == ("alice", "resend", "1 edited, handler shop.book: 4", 1)


def test_the_page_of_actions_shows_who_did_what(failing):
    for _ in range(52):
        failing.post("deliveries/1/replay")
    failing.post("handlers/pause", handler="shop.mail")

    first = failing.get("actions")
    (address,) = re.findall(r'href="([^"]*before=[^"]*)"', first.text)
    second = failing.client.get(address)

    assert re.search(r"alice.*?pause.*?shop\.mail", first.text, re.DOTALL)
    assert [len(re.findall(r'class="age"', page.text)) for page in (first, second)] == [50, 3]
