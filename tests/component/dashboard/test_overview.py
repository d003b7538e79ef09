"""The first page: the sentence, the numbers, the charts, and types that have gone silent."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from billhook.clock import FrozenClock, SystemClock
from billhook.dashboard.overview import _received_chart
from billhook.events import EVENT_TYPES
from billhook.inbox import WorkerRecord
from billhook.inbox.operating.holds import hold_worker
from billhook.inbox.running.leases import LOST
from billhook.inbox.tables.records import fingerprint
from billhook.inbox.tables.schema import failure
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import IssueState, change_issue, list_issues
from billhook.inbox.watching.overview import PeriodFigures
from support.apps import deliver
from support.signing import OTHER_SECRET

NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def at_noon(site):
    """A site whose clock stands at noon, with a worker that was just seen."""
    made = site(clock=FrozenClock(NOON))
    made.inbox.record_worker(WorkerRecord("worker-1", "worker", 2, NOON), NOON)
    return made


def sentence(made) -> str:
    found = re.search(r'<p class="banner \w*">(.*?)</p>', made.get("").text, re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", "", found[1]).split())


def figures(made) -> list[tuple[str, str]]:
    pattern = r'class="figure \w+" href="([^"]+)"><strong>([^<]+)</strong> <span>([^<]+)</span>'
    return [(f"{number} {text}", address) for address, number, text in re.findall(pattern, made.get("").text)]


def row(made, event_type: str) -> str:
    found = re.search(
        rf"<tr[^>]*>(?:(?!</tr>).)*?>{re.escape(event_type)}<.*?</tr>", made.get("").text, re.DOTALL
    )
    inline = re.sub(r"</?(?:span|bdi|wbr)[^>]*>", "", found[0])
    return " ".join(re.sub(r"<[^>]+>", " ", inline).split())


def test_an_inbox_without_deliveries_says_so(at_noon):
    assert sentence(at_noon) == "No delivery has been received yet."
    assert 'class="banner "' in at_noon.get("").text


def test_all_is_well_when_nothing_failed_and_nothing_waits(at_noon):
    at_noon.deliver(at=NOON)

    page = at_noon.get("").text
    assert ('class="banner good"' in page, "Next: " in page) == (True, False)
    assert "The last delivery came just now." in page


def test_a_clock_that_is_off_is_told_with_a_link_to_the_health_page(at_noon, monkeypatch):
    monkeypatch.setattr(type(at_noon.inbox.database), "machine_ahead_seconds", -90.0)

    assert sentence(at_noon) == (
        "Needs attention: this machine&#39;s clock is 1 min 30 s behind the database server&#39;s."
    )
    assert 'href="/billhook/health"' in at_noon.get("").text


def test_what_needs_attention_is_told_the_worst_first_with_links_to_it(at_noon):
    at_noon.deliver(b"{broken", at=NOON)
    at_noon.broken.append(KeyError("no ledger"))
    at_noon.deliver(at=NOON)
    at_noon.inbox.pause_handler("shop.mail", None, NOON)
    assert deliver(at_noon.app, secret=OTHER_SECRET, at=NOON).status_code == 401
    at_noon.state.inbox.close()  # writes what was counted in memory
    at_noon.state.dispatcher.clock.advance(seconds=1_200)

    told = sentence(at_noon)
    page = at_noon.get("").text

    assert told == (
        "Needs attention: no worker has been seen for 20 min, 1 delivery is quarantined, "
        "1 handler is paused: shop.mail, a delivery has waited for a worker for 19 min 50 s."
    )
    addresses = re.findall(r'href="([^"]+)"', page.partition('class="banner bad"')[2].partition("</p>")[0])
    assert [at_noon.client.get(one).status_code for one in addresses if one.startswith("/")] == [200] * 4
    # One next step: about the first.
    assert page.count('class="button primary"') == 1
    assert 'href="/billhook/workers">Next: look at the workers</a>' in page
    assert "<code>flask --app shop billhook doctor</code>" in page
    tones = re.findall(r'class="figure (\w+)"', page)
    assert tones == ["quiet", "warn", "quiet", "warn", "bad"]
    assert '<svg class="level" width="100%" height="12" role="img" aria-label="waiting 1">' in page
    assert re.search(r"shop\.book 1 19 min ago", " ".join(at_noon.text("").replace("waiting 1", "").split()))
    assert "refused: mismatch" in page


def test_a_worker_that_is_held_leads_to_who_holds_it(at_noon):
    hold_worker(at_noon.inbox, "worker-1", NOON)

    page = at_noon.get("").text

    assert 'href="/billhook/actions">Next: look at the actions</a>' in page
    assert "<code>flask --app shop billhook actions</code>" in page


def test_requests_that_are_all_refused_have_a_next_step_on_the_page_and_in_the_command(at_noon, monkeypatch):
    monkeypatch.setattr(SystemClock, "now", staticmethod(lambda: NOON))
    assert deliver(at_noon.app, secret=OTHER_SECRET, at=NOON).status_code == 401
    at_noon.state.inbox.close()  # writes what was counted in memory

    page = at_noon.get("").text
    status = at_noon.app.test_cli_runner().invoke(args=["billhook", "status"]).stdout

    assert 'href="/billhook/health">Next: look at the health</a>' in page
    assert re.search(r"^first command: .*billhook doctor$", status, re.MULTILINE)


def test_each_frequent_cause_of_refusals_has_a_colour_of_its_own():
    causes = Counter(mismatch=9, stale=8, unsigned=7, method=6, size=2, encoding=1)
    hour = PeriodFigures(NOON, refused=causes)

    chart = _received_chart("24h", [hour])

    assert [(series.name, series.tone) for series in chart.series[3:]] == [
        ("refused: mismatch", "warn"), ("refused: stale", "bad"), ("refused: unsigned", "violet"),
        ("refused: method", "rose"), ("refused: other causes", "strong"),
    ]  # fmt: skip
    tones = [series.tone for series in chart.series]
    assert sorted(tones) == sorted({*tones})
    assert chart.rows[0][1][-1] == 3


def test_a_handler_that_kills_workers_is_nothing_wrong_with_the_workers_that_run(at_noon):
    at_noon.broken.append(KeyError("no ledger"))
    at_noon.deliver(at=NOON)
    lost = {"error": LOST, "fingerprint": fingerprint("shop.book", LOST)}
    with at_noon.inbox.database.write() as connection:
        connection.execute(update(failure).values(lost))

    assert "workers die while shop.book runs" in sentence(at_noon)
    assert re.findall(r'class="figure (\w+)"', at_noon.get("").text)[-1] == "quiet"


def test_open_issues_need_attention_until_someone_works_on_them(at_noon):
    at_noon.broken.append(KeyError("no ledger"))
    at_noon.deliver(at=NOON)
    update_issues(at_noon.inbox, NOON)
    (issue,) = list_issues(at_noon.inbox)

    assert sentence(at_noon) == "Needs attention: shop.book fails: KeyError."
    assert '<a href="/billhook/failures">shop.book fails: KeyError</a>' in at_noon.get("").text
    change_issue(at_noon.inbox, issue.id, IssueState.ACKNOWLEDGED, NOON, who="ada")
    assert "Needs attention" not in sentence(at_noon)


def test_people_see_the_message_of_a_live_issue_and_programs_the_class(at_noon, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    at_noon.broken.append(ConnectionError("the ledger refused 'ada': 10.0.0.7 is closed" + " for now" * 9))
    at_noon.deliver(at=NOON)
    update_issues(at_noon.inbox, NOON)
    run = at_noon.app.test_cli_runner().invoke
    told = "shop.book fails: ConnectionError: the ledger refused …: … is closed" + " for now" * 8 + " f…"

    shown = [at_noon.get("").text, at_noon.get("health").text, run(args=["billhook", "status"]).output]
    sent_on = [run(args=["billhook", name, "--json"]).output for name in ("status", "doctor")]

    assert [told in each for each in shown] == [True] * 3
    assert [("fails: ConnectionError" in each, "ledger" in each) for each in sent_on] == [(True, False)] * 2


def test_the_numbers_are_links_to_what_they_count(at_noon):
    at_noon.deliver(b"{broken", at=NOON)
    at_noon.broken.append(KeyError("no ledger"))
    at_noon.deliver(at=NOON)

    found = figures(at_noon)

    texts = ["2 accepted", "1 not finished", "0 dead", "1 quarantined", "1 worker"]
    assert [text for text, _ in found] == texts
    listed = [at_noon.client.get(address.replace("&amp;", "&")) for _, address in found[:4]]
    counted = [len(re.findall(r'name="id" value=', each.text)) for each in listed]
    assert counted == [2, 1, 0, 1]


def test_the_charts_say_what_happened_in_each_hour_and_day(at_noon):
    at_noon.deliver(at=NOON, message_id="one")
    deliver(at_noon.app, b"{}", at=NOON, message_id="two")
    deliver(at_noon.app, b"{}", at=NOON, message_id="two")
    at_noon.state.handle_due()
    at_noon.broken.append(KeyError("no ledger"))
    at_noon.deliver(at=NOON)
    at_noon.state.inbox.close()

    hours, days = at_noon.get("?range=24h").text, at_noon.get("?range=30d").text

    for page, label in ((hours, "01-15 12:00"), (days, "2026-01-15")):
        received = "Received deliveries: accepted 3, duplicate 1, conflict 0; the highest bar is 4"
        assert f"{received}, at {label}" in page
        assert "Attempts of handlers: succeeded 3, failed 1, dead 0" in page
    # What is empty before the first delivery is drawn too: the bar of a young inbox is as narrow as others.
    assert hours.count('scope="row"') == 2 * 24
    assert days.count('scope="row"') == 2 * 30
    assert row(at_noon, "InvoiceApproved").startswith("InvoiceApproved 2 InvoiceApproved: 0, 0")
    assert row(at_noon, "InvoiceApproved").endswith("just now shop.book, shop.mail")
    # Each type and one row for all others; those that never came are folded.
    never = len(EVENT_TYPES) + 1 - 2
    came, folded = hours.partition("<h2>Event types")[2].split("<details")
    assert (came.count('class="age '), folded.count('class="title ')) == (2, never)
    assert f"<summary>{never} types that never came</summary>" in folded
    assert row(at_noon, "TierCrossed") == "TierCrossed no handler"


def test_the_last_hour_is_shown_by_the_minute_and_is_the_range_if_it_has_all(at_noon):
    at_noon.deliver(at=NOON)
    at_noon.state.dispatcher.clock.advance(seconds=65)
    at_noon.broken.append(KeyError("no ledger"))
    at_noon.deliver(at=NOON + timedelta(seconds=65), message_id="two")

    page = at_noon.get("").text
    assert 'range=1h" aria-current="true"' in page
    assert "Received deliveries: accepted 2; the highest bar is 1, at 01-15 12:00" in page
    assert "Attempts of handlers: succeeded 3, failed 1, dead 0; the highest bar is 2, at 01-15 12:00" in page
    assert page.count('scope="row"') == 2 * 60
    # A refusal is known by the hour alone: the default shows it, and so it does older deliveries.
    deliver(at_noon.app, secret=OTHER_SECRET, at=NOON)
    at_noon.state.inbox.close()
    assert 'range=24h" aria-current="true"' in at_noon.get("").text


def test_a_silent_type_is_marked_and_comes_first(at_noon):
    for number in range(10):
        at_noon.deliver(
            b"{}", "PingTest", at=at_noon.state.dispatcher.clock.now(), message_id=f"msg_{number}"
        )
        at_noon.state.dispatcher.clock.advance(seconds=86_400)
    at_noon.state.dispatcher.clock.advance(seconds=3 * 86_400)
    at_noon.deliver(at=at_noon.state.dispatcher.clock.now())

    assert row(at_noon, "PingTest").endswith("4 d ago silent no handler")
    assert at_noon.get("").text.index(">PingTest<") < at_noon.get("").text.index(">InvoiceApproved<")


def test_the_success_of_each_handler_stands_beside_what_waits_for_it(site):
    made = site(clock=FrozenClock(NOON), BILLHOOK_RETRY_SCHEDULE_SECONDS=[10])
    made.deliver(at=NOON)
    made.broken.append(KeyError("no ledger"))
    made.deliver(at=NOON, message_id="two")
    retried = " ".join(made.text("").split())
    made.state.dispatcher.clock.advance(seconds=11)
    made.state.handle_due()
    dead = " ".join(made.text("").split())

    # An attempt that is retried is no failure; a run that is dead is one.
    assert "shop.book 100 % 100 % 100 %" in retried
    assert "shop.book 50.0 % 50.0 % 50.0 %" in dead
    assert "shop.mail 100 % 100 % 100 %" in dead


def test_a_bar_of_what_waits_has_a_scale_and_a_legend(at_noon):
    at_noon.broken.append(KeyError("no ledger"))
    at_noon.deliver(at=NOON)

    page = at_noon.get("").text

    assert "A whole bar is 10 runs." in page
    assert '<span class="key"><span class="swatch warn"></span>retrying</span>' in page
    assert re.search(r'class="level".*?<rect class="warn" x="0.0%" y="0.0" width="10.0%"', page, re.DOTALL)
