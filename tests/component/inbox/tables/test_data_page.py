"""deploy/DATA.md: every table is on it, with the columns that texts of deliveries get into, and the times.

What it says of logs is held by test_log_records.py, of traces by test_tracing.py, of metrics by
test_metrics.py, of notifications by test_notifications.py, of pages by test_pages.py, of backups by
test_backup_and_restore.py, and of actions by cli/test_erase.py.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import NamedTuple

import pytest
from sqlalchemy import LargeBinary, Text

from billhook import effects
from billhook.inbox import ContentKey, HandlerLimits, NewDelivery, RunOptions, RunPlan, RunState
from billhook.inbox.counting import counts, retention
from billhook.inbox.counting.retention import Cutoffs
from billhook.inbox.operating import actions
from billhook.inbox.operating.operations import erase
from billhook.inbox.running.workers import WORKER_KEPT_FOR
from billhook.inbox.tables.schema import metadata, version
from billhook.inbox.watching import issue_updates
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import IssueState, change_issue, list_issues
from billhook.settings import OPTIONS
from support.inbox_view import NOON, rows
from support.pages import ROOT
from support.runs import result_of

PAGE = (ROOT / "deploy" / "DATA.md").read_text(encoding="utf-8")
MARK = "cus_of_the_page"
LATER = NOON + timedelta(hours=1)


class Row(NamedTuple):
    texts: str
    erased: str
    kept: str


def described() -> dict[str, Row]:
    """The page's rows by table; one row may describe several."""
    section = PAGE.split("\n## In the inbox\n")[1].split("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {
        name: Row(texts, erased, kept)
        for names, _, texts, erased, kept in cells
        for name in re.findall(r"`(\w+)`", names)
    }


def columns_named() -> set[tuple[str, str]]:
    """Table and column of each text of a delivery, as the page has it; digests are not texts."""
    digests = {("delivery", "digest"), ("run", "identity")}
    named = {
        (table, column)
        for table, row in described().items()
        for column in re.findall(r"`(\w+)`", row.texts)
        if not row.texts.startswith("none")
    }
    assert digests <= named
    return named - digests


def columns_with(where: str, mark: str) -> set[tuple[str, str]]:
    """Table and column of each value in the inbox that contains a text."""
    found = set()
    for table in (*metadata.sorted_tables, version):
        for column in table.columns:
            if isinstance(column.type, Text | LargeBinary):
                values = rows(where, f'SELECT "{column.name}" FROM {table.name}')
                if any(mark in _text(value) for (value,) in values):
                    found.add((table.name, column.name))
    return found


def _text(value: object) -> str:
    return bytes(value).decode(errors="replace") if isinstance(value, bytes | memoryview) else str(value)


@pytest.fixture
def deliveries(inbox):
    """Two that name a customer wherever they can: one failed and paused its handler, one is unreadable."""
    body, headers = f'{{"customerId": "{MARK}"}}'.encode(), f'{{"x-customer": "{MARK}"}}'
    failing, unreadable = (
        inbox.put(NewDelivery("default", key, "PingTest", body, headers, NOON, NOON)).delivery_id
        for key in ("k1", "k2")
    )
    content = ContentKey("digest", ("customer_id",), NOON, 60.0)
    options = RunOptions(f"order {MARK}", content, newest_only=True, newest_key=MARK)
    error = f"KeyError: {MARK}"
    with inbox.transaction("w", {"book": HandlerLimits(("book",), pause_after=1)}) as transaction:
        plan = RunPlan(failing, ("book",), options={"book": options}, identifiers=(MARK,) * 3)
        transaction.plan([plan], NOON)
        transaction.plan([RunPlan(unreadable, error=f"no InvoiceApproved: {MARK}")], NOON)
        (claim,) = transaction.claim(9, NOON, LATER)
        failed = {"error": error, "traceback": error, "group": "bug", "place": "billing.py:3"}
        transaction.settle([result_of(claim, RunState.DEAD, 0, **failed)])
    update_issues(inbox, NOON, with_figures=False)
    for each in list_issues(inbox):
        change_issue(inbox, each.id, IssueState.ACKNOWLEDGED, NOON, who="carol", why=f"asked {MARK}")
    return [failing, unreadable]


def test_the_page_has_every_table_and_no_other():
    assert described().keys() == {*metadata.tables, version.name}
    assert f"`{effects.effect.name}`" in PAGE


def test_texts_of_deliveries_are_in_the_columns_that_the_page_names_and_after_erasing_in_none(
    inbox, where, deliveries
):
    assert columns_with(where, MARK) == columns_named()

    erase(inbox, deliveries, LATER)

    assert columns_with(where, MARK) == set()
    assert rows(where, "SELECT digest, identity FROM delivery JOIN run ON delivery_id = delivery.id") == [
        (None, None)
    ]
    gone = {table for table, row in described().items() if row.erased == "rows deleted"}
    assert {
        table for table in ("delivery", "run", "failure") if not rows(where, f"SELECT 1 FROM {table}")
    } == gone


def test_retention_removes_the_texts_of_the_tables_that_are_kept_as_the_body_is(inbox, where, deliveries):
    limits = Cutoffs.of(NOON + timedelta(days=1), retention_days=0.5)
    inbox.prune(limits, after=0, limit=100)

    left = {table for table, _ in columns_with(where, MARK)}

    kept_as_body = {"delivery", *(name for name, row in described().items() if "delivery's body" in row.kept)}
    assert kept_as_body == {"delivery", "run", "failure"}
    # The issues are of deliveries whose bodies are gone: their texts go as well.
    assert left == {table for table, _ in columns_named()} - kept_as_body - {"billhook_issue"}
    assert rows(where, "SELECT count(*) FROM delivery WHERE digest IS NOT NULL") == [(2,)]


def test_the_times_of_the_page_are_those_of_the_code():
    page = described()
    (default,) = {option.default for option in OPTIONS if option.key == "BILLHOOK_RETENTION_DAYS"}
    months = timedelta(days=396)  # 13

    assert f"`BILLHOOK_RETENTION_DAYS` ({default:g} days)" in page["delivery"].kept
    assert f"stay for at least {retention.KEYS_DAYS:g} days" in page["delivery"].kept
    assert page["billhook_issue"].kept.startswith(f"{issue_updates.KEPT_FOR.days} days after it was resolved")
    assert (page["billhook_action"].kept, actions.KEPT_FOR) == ("13 months", months)
    assert (
        page["billhook_count"].kept
        == f"by hour {counts.HOURS_KEPT_FOR.days} days, by day 13 months, then sums"
    )
    assert months == counts.KEPT_FOR
    assert (page["billhook_worker"].kept, WORKER_KEPT_FOR) == (
        "one day after they were last seen",
        timedelta(days=1),
    )
    named = set(re.findall(r"`(BILLHOOK_\w+)`", PAGE))
    assert {key for key in named if key.endswith("_DAYS")} == {
        o.key for o in OPTIONS if o.key.endswith("_DAYS")
    }
    assert named <= {option.key for option in OPTIONS}
