"""Row security skips statements without an error: nothing that somebody waits for may end silently."""

from __future__ import annotations

import itertools
import logging
import threading
import time

import pytest

from billhook import Handlers
from billhook.engines.reporting import log_row_security
from billhook.errors import SchemaForbidden
from billhook.events import PingTest
from billhook.inbox import Inbox
from billhook.inbox.tables.schema import metadata
from support.apps import deliver, make_app
from support.inbox_view import incoming, rows
from support.processes import until
from support.row_security import COMMANDS, protected_inbox
from support.timeouts import scaled

SKIPS = "the database skips updates without an error, probably by row security"


@pytest.fixture
def protected(database_url):
    with protected_inbox(database_url) as made:
        yield made


@pytest.fixture
def inbox(protected):
    opened = Inbox(protected.url)
    yield opened
    opened.close()


def errors(caplog) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


# --- what is found ----------------------------------------------------------------------------------


def test_each_command_that_no_policy_allows_is_named_with_its_table(protected, inbox):
    assert inbox.database.row_security().missing == {}
    for table, command in itertools.product([*metadata.tables, "billhook_version"], COMMANDS):
        if (table, command) == ("billhook_version", "SELECT"):
            continue  # refused at once: see below
        protected.allow_all_but(table, command)
        found = inbox.database.row_security()
        protected.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")

        assert found.missing == {table: (command,)}
        assert found.text == f"{command} of {table}"


def test_what_counts_is_a_permissive_policy_for_this_role_or_one_that_it_has_the_rights_of(protected, inbox):
    def missing(policy: str | None = None) -> list[str]:
        protected.execute("DROP POLICY IF EXISTS given ON delivery")
        if policy is not None:
            protected.execute(f"CREATE POLICY given ON delivery {policy}")
        return list(inbox.database.row_security().missing["delivery"])

    protected.allow("delivery")

    assert missing() == list(COMMANDS)
    assert missing("AS RESTRICTIVE TO PUBLIC USING (true)") == list(COMMANDS)
    assert missing("TO pg_monitor USING (true)") == list(COMMANDS)
    assert missing("FOR UPDATE TO PUBLIC USING (true)") == ["SELECT", "INSERT", "DELETE"]
    assert missing(f"TO {protected.role} USING (true)") == []
    protected.execute(f"GRANT pg_monitor TO {protected.role}")
    assert missing("TO pg_monitor USING (true)") == []


def test_the_owner_is_subject_only_where_row_security_is_forced_and_bypassrls_is_never(protected, inbox):
    protected.allow("run")
    protected.execute(f"ALTER TABLE run OWNER TO {protected.role}")
    as_owner = inbox.database.row_security()
    protected.execute("ALTER TABLE run FORCE ROW LEVEL SECURITY")
    forced = inbox.database.row_security()
    protected.execute(f"ALTER ROLE {protected.role} BYPASSRLS")
    bypassing = inbox.database.row_security()

    assert as_owner.missing == bypassing.missing == {}
    assert forced.missing == {"run": COMMANDS}


def test_a_revision_that_row_security_hides_is_no_missing_schema(protected, inbox):
    protected.allow_all_but("billhook_version", "SELECT")

    for dry_run in (True, False):
        with pytest.raises(SchemaForbidden) as refused:
            inbox.upgrade(dry_run=dry_run)

        statement = 'ALTER TABLE "billhook".billhook_version DISABLE ROW LEVEL SECURITY'
        assert refused.value.statement == statement
    protected.execute(statement)
    inbox.upgrade()


# --- what is skipped --------------------------------------------------------------------------------


@pytest.fixture
def shop(protected, tmp_path):
    """An app with the inline engine; `calls` is what its handler was called for."""
    handlers, calls = Handlers(), []

    @handlers.on(PingTest, name="act")
    def act(event, delivery):
        calls.append(delivery.key)

    app = make_app(tmp_path, BILLHOOK_ENGINE="inline", BILLHOOK_INBOX_URL=protected.url, handlers=[handlers])
    app.calls = calls
    yield app
    app.extensions["billhook"].close()


def states(url, table):
    return [state for (state,) in rows(url, f"SELECT state FROM billhook.{table} ORDER BY id")]


def test_a_delivery_whose_plan_is_skipped_is_an_error_of_the_log(shop, protected, database_url, caplog):
    protected.allow_all_but("delivery", "UPDATE")

    statuses = [deliver(shop, message_id=key).status_code for key in ("first", "second")]
    refused = errors(caplog)
    caplog.clear()
    protected.allow("delivery", *COMMANDS)
    shop.extensions["billhook"].handle_due()

    assert statuses == [200, 200]
    assert all(SKIPS in text and "run `flask --app shop billhook doctor`" in text for text in refused)
    assert len(refused) == 2
    assert (shop.calls, states(database_url, "delivery")) == (["first", "second"], ["done", "done"])
    assert errors(caplog) == []


def test_a_result_that_is_skipped_is_an_error_of_the_log(shop, protected, database_url, caplog):
    protected.allow_all_but("run", "UPDATE")

    assert deliver(shop, message_id="first").status_code == 200

    assert (shop.calls, states(database_url, "run")) == (["first"], ["running"])
    assert any(SKIPS in text for text in errors(caplog))


def test_deliveries_that_stay_unread_are_not_read_again_at_once(shop, protected, monkeypatch):
    protected.allow_all_but("delivery", "UPDATE")
    inbox = shop.extensions["billhook"].inbox
    monkeypatch.setattr(inbox.database, "plan_rows", 2)
    for key in ("first", "second", "third"):
        inbox.put(incoming(key))

    assert shop.extensions["billhook"].handle_due() == 0  # and it returns


def test_a_worker_that_cannot_plan_goes_on_polling_slowly(shop, protected, monkeypatch, caplog):
    protected.allow_all_but("delivery", "UPDATE")
    state = shop.extensions["billhook"]
    monkeypatch.setattr(state.inbox.database, "plan_rows", 2)
    for key in ("first", "second", "third"):
        state.inbox.put(incoming(key))
    worker, polls, poll = state.worker(1), [], state.inbox.poll
    monkeypatch.setattr(state.inbox, "poll", lambda *given, **named: polls.append(1) or poll(*given, **named))
    running = threading.Thread(target=worker.run, args=(1.0,))
    running.start()
    until(lambda: any(SKIPS in text for text in errors(caplog)), 20)

    before = len(polls)
    time.sleep(1.0)
    during = len(polls) - before
    worker.stop()
    running.join(scaled(20))

    assert during <= 5  # one each two seconds, and those that something else wakes


def test_control_a_delivery_that_another_worker_planned_is_no_error(shop, protected, monkeypatch, caplog):
    """And where nothing was refused, nothing is asked."""
    inbox = shop.extensions["billhook"].inbox
    asked, ask = [], inbox.count_skipped
    monkeypatch.setattr(inbox, "count_skipped", lambda *ids: asked.append(ids) or ask(*ids))
    assert deliver(shop, message_id="first").status_code == 200
    nothing_asked = list(asked)
    read = inbox.received

    def planned_meanwhile(*arguments, **named):
        found = poll(*arguments, **named)
        protected.execute("UPDATE delivery SET state = 'done'")
        return found

    poll = inbox.poll
    monkeypatch.setattr(inbox, "poll", planned_meanwhile)
    assert deliver(shop, message_id="second").status_code == 200

    assert read(9) == []
    assert nothing_asked == []
    assert len(asked) == 1
    assert errors(caplog) == []


def test_a_worker_says_regularly_what_no_policy_allows(protected, inbox, caplog):
    """Such as a DELETE that retention has skipped, and a run that is due and cannot be locked."""

    def said() -> list[str]:
        caplog.clear()
        log_row_security(inbox)
        return errors(caplog)

    before = said()
    protected.allow_all_but("delivery", "DELETE")
    during = said()

    assert before == []
    assert during
    assert all("row security has no policy for this role for DELETE of delivery" in text for text in during)
