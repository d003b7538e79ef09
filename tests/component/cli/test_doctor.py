"""`billhook doctor`: each fault is planted, and found; without it nothing is."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

import billhook
from billhook import Handlers, Source
from billhook.doctor.inbox import _COUNTED, _OTHER_CHECKS, _WORDS, condition_codes
from billhook.errors import InboxUnavailable
from billhook.events import Event, InvoiceApproved, InvoicePaymentStatusChanged, PingTest, sample
from billhook.events.base import _registered
from billhook.extension import get_state
from billhook.fields import strict_json
from billhook.inbox import Counted, WorkerRecord
from billhook.inbox.counting.counts import Counts
from billhook.inbox.operating.subscriptions import remember, terms_of
from billhook.inbox.postgres import facts as postgres_facts
from billhook.inbox.postgres.facts import PostgresFacts
from billhook.inbox.reading.searches import newest_deliveries
from billhook.inbox.sqlite.facts import SqliteFacts
from billhook.inbox.sqlite.library import sqlite3
from billhook.inbox.watching.judgement import CONDITIONS, LIMITS
from billhook.settings import OPTIONS
from billhook.signing import BodyHMAC, BodyJWT, TimestampedHMAC
from support.apps import deliver, inbox_file
from support.inbox_view import change, incoming, open_inbox, place_of
from support.postgres import BOTH, libpq
from support.processes import until
from support.signing import OTHER_SECRET, SECRET

HANDLERS = """
from billhook import Handlers
from billhook.events import InvoiceApproved

handlers = Handlers()

@handlers.on_any(timeout_seconds=30)
def everything(event): ...
"""
INBOX = Path(billhook.__file__).parent / "inbox"
MACHINE = {
    "inbox-in-container",
    "inbox-in-memory",
    "free-space",
    "sqlite-version",
    "postgres-superuser",
    "postgres-fsync",
    "postgres-autovacuum",
    "postgres-open-transaction",
}
"""What depends on where the tests run: each has a test of its own with facts."""


def found_in(result, *, everything: bool = False) -> dict[str, dict[str, str]]:
    """The findings by their code."""
    told = json.loads(result.stdout)
    assert (result.exit_code == 0) is told["ok"]
    assert told["ok"] is all(each["level"] != "error" for each in told["findings"])
    return {each["code"]: each for each in told["findings"] if everything or each["code"] not in MACHINE}


@pytest.fixture
def examined(run, tmp_path, secret_file, monkeypatch):
    """Runs `doctor --json` on a standalone set-up that is good, but for the options given."""
    # These tests may run in a copy without its git history.
    monkeypatch.setattr("billhook.doctor.configuration.installed_version", lambda: "0.1.0")
    (tmp_path / "shop_handlers.py").write_text(HANDLERS)
    secrets = secret_file(SECRET)

    def examine(*arguments: str, **options: str) -> dict[str, dict[str, str]]:
        good = {"SECRETS_FILE": secrets, "HANDLERS": "shop_handlers.py", "ENGINE": "worker"}
        given = {name: text for name, text in {**good, **options}.items() if text}
        if "SECRETS" in options:
            given.pop("SECRETS_FILE", None)
        return found_in(run("doctor", "--json", *arguments, **given))

    return examine


@pytest.fixture
def inbox(run, tmp_path):
    """An inbox where the command looks for it, with a worker that was seen just now."""
    made = open_inbox(tmp_path / "billhook.db")
    made.record_worker(WorkerRecord("a", "worker", 1, datetime.now(UTC)), datetime.now(UTC))
    yield made
    made.close()


@pytest.mark.parametrize("bare_url", BOTH, indirect=True)
def test_a_good_set_up_has_no_findings(examined, inbox_url):
    inbox = open_inbox(place_of(inbox_url))
    inbox.record_worker(WorkerRecord("a", "worker", 1, datetime.now(UTC)), datetime.now(UTC))
    inbox.close()

    assert examined() == {}


def test_people_are_told_that_nothing_was_found(run, monkeypatch):
    monkeypatch.setattr("billhook.cli.doctor.examine", lambda *_: ([], []))

    assert run("doctor").stdout == "Nothing was found.\n"


# --- subscriptions --------------------------------------------------------------------------------


def test_a_handled_type_that_was_never_subscribed_is_a_note_until_it_comes(examined, inbox, tmp_path):
    own = HANDLERS.replace("import InvoiceApproved", "import InvoiceApproved, Overage, PaymentFailed")
    own += (
        "\n@handlers.on(InvoiceApproved, Overage, PaymentFailed, timeout_seconds=30)\ndef some(event): ...\n"
    )
    (tmp_path / "some_handlers.py").write_text(own)
    assert examined(HANDLERS="some_handlers.py") == {}  # nothing was subscribed from here

    terms = terms_of("https://api.example", "https://shop.example", {"event_type": "InvoiceApproved"})
    remember(inbox, "ann", terms, inbox.now())
    found = examined(HANDLERS="some_handlers.py")

    assert examined() == {}  # a handler of all types asks for none of them
    assert set(found) == {"type-unsubscribed"}
    note = found["type-unsubscribed"]
    assert note["level"] == "note"
    assert note["what"].endswith("which have a handler: PaymentFailed, Overage")
    assert note["remedy"] == "`billhook subscribe --type PaymentFailed --type Overage --callback-url URL`"
    inbox.put(incoming("1", event_type="Overage"))
    assert examined(HANDLERS="some_handlers.py")["type-unsubscribed"]["what"].endswith(": PaymentFailed")
    inbox.put(incoming("2", event_type="PaymentFailed"))
    assert "type-unsubscribed" not in examined(HANDLERS="some_handlers.py")


# --- options, secrets, files ----------------------------------------------------------------------


def test_an_option_that_is_wrong_is_a_finding(examined, inbox):
    for options, level, code in (
        ({"NO_SUCH": "1"}, "error", "configuration"),
        ({"SECRETS": "short"}, "error", "configuration"),
        ({"SECRETS": SECRET}, "note", "secrets-in-environment"),
        ({"ENGINE": "inline"}, "warning", "engine-inline"),
        ({"API_URL": "http://billing.example"}, "error", "api-without-tls"),
        ({"NOTIFY_FILE": "/nowhere/notify.txt"}, "error", "configuration"),
        ({"TOLERANCE_SECONDS": "3600"}, "warning", "tolerance"),
        ({"HANDLERS": ""}, "note", "handlers-not-named"),
        ({"HANDLERS": "nowhere.py"}, "error", "configuration"),
        ({"INBOX_URL": "sqlite:////nowhere/billhook.db"}, "error", "inbox-missing"),
        ({"INBOX_URL": "sqlite:///nowhere.db"}, "warning", "inbox-missing"),
        ({"INBOX_URL": "mysql://x"}, "error", "configuration"),
    ):
        found = examined(**options)
        assert found[code]["level"] == level
        assert set(found) - {"secrets-in-environment"} <= {code}
    assert examined(API_URL="https://billing.example") == {}


def test_a_secret_that_can_be_guessed_is_a_finding_that_does_not_show_it(run, examined, inbox, secret_file):
    for secret, found in (
        ("abababababababababababababababab", {"secret-guessable"}),
        ("Password-4711-of-the-billing", {"secret-guessable"}),
        ("k3J9x_fL2pQ8vR5tZ", {"secret-short"}),
        ("k3J9x_fL2pQ8vR5tZ7mW4nB6cY1d", set()),
    ):
        options = {"SECRETS_FILE": secret_file(secret), "SIGNATURE": "timestamped-hmac"}

        assert set(examined(**options)) == found
        assert secret not in run("doctor", **options).output


FILES = [one.key for one in OPTIONS if one.unit == "path" and one.key != "BILLHOOK_URL_PREFIX"]


@pytest.mark.parametrize("key", FILES)
def test_a_secret_file_that_others_may_use_or_that_is_missing_is_a_finding(examined, inbox, tmp_path, key):
    file = tmp_path / "other.txt"
    file.touch()
    file.write_text(f"{SECRET}\n" if key == "BILLHOOK_SECRETS_FILE" else "")
    options = {key.removeprefix("BILLHOOK_"): str(file)}
    for mode, code in ((0o644, "secret-file-read"), (0o620, "secret-file-write"), (0o600, None)):
        file.chmod(mode)

        about = {name: one for name, one in examined(**options).items() if key in one["what"]}
        about.pop("configuration", None)  # what reads it may refuse it too

        assert list(about) == ([code] if code else [])
        assert code is None or f"({key})" in about[code]["what"]
        assert code is None or about[code]["remedy"].startswith("chmod 600 ")
    file.unlink()
    (problem,) = [one for one in examined(**options).values() if str(file) in one["what"]]
    assert key in problem["what"]
    assert "cannot be read: No such file or directory" in problem["what"]


def test_a_folder_in_which_anyone_may_replace_the_secret_is_a_finding(examined, inbox, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "secret.txt"
    file.touch(mode=0o600)
    file.write_text(SECRET)

    for mode, planted in ((0o777, True), (0o1777, False), (0o700, False)):
        folder.chmod(mode)
        assert ("secret-folder-write" in examined(SECRETS_FILE=str(file))) is planted


def test_a_scheme_without_a_time_and_many_secrets_are_findings(examined, inbox, secret_file):
    options = {"SIGNATURE": "body-hmac", "SIGNATURE_HEADER": "X-Sig", "REPLAY_PROTECTION": "dedupe-only"}

    assert set(examined(**options)) == {"replay"}
    assert set(examined(SECRETS_FILE=secret_file("\n".join([SECRET, OTHER_SECRET])))) == set()
    third = "whsec_" + "k3J9xfL2pQ8vR5tZ7mW4nB6cY1d" + "x" * 5
    assert set(examined(SECRETS_FILE=secret_file("\n".join([SECRET, OTHER_SECRET, third])))) == {
        "secrets-many"
    }


# --- inbox ----------------------------------------------------------------------------------------


def test_an_inbox_that_others_may_use_is_a_finding(examined, inbox, tmp_path):
    (tmp_path / "billhook.db").chmod(0o644)
    assert set(examined()) == {"inbox-mode-read"}

    (tmp_path / "billhook.db").chmod(0o666)
    assert examined()["inbox-mode-write"]["level"] == "error"


@pytest.mark.parametrize("bare_url", BOTH, indirect=True)
def test_the_facts_of_an_inbox_are_those_of_its_database(inbox_url):
    made = open_inbox(place_of(inbox_url))
    facts = made.database.facts()
    made.close()

    if isinstance(facts, SqliteFacts):
        assert (facts.journal_mode, facts.synchronous, facts.lax_files) == ("wal", 2, {})
        assert facts.version == sqlite3.sqlite_version_info
        assert facts.library == sqlite3.__name__.partition(".")[0]
        assert min(facts.free_bytes, facts.file_bytes, facts.path.stat().st_size) > 0
    else:
        assert isinstance(facts, PostgresFacts)
        assert (facts.local, facts.encrypted) == (True, False)
        assert facts.sslmode in ("prefer", "disable")
        assert (facts.version >= 15, facts.inbox_bytes > 8_192) == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code", "level"),
    [
        ("full_page_writes", "postgres-fsync", "error"),
        ("autovacuum", "postgres-autovacuum", "warning"),
    ],
)
def test_a_server_that_may_lose_pages_or_frees_none_is_a_finding(run, frail_url, name, code, level):
    """On a server of our own, whose setting is changed and put back."""
    told = []
    with psycopg.connect(**libpq(frail_url), autocommit=True) as connection:
        for setting in ("off", "on"):
            connection.execute(f"ALTER SYSTEM SET {name} = {setting}")
            connection.execute("SELECT pg_reload_conf()")
            until(lambda wanted=setting: connection.execute(f"SHOW {name}").fetchone() == (wanted,))
            result = run("doctor", "--json", INBOX_URL=frail_url)
            told.append(found_in(result, everything=True).get(code, {}).get("level"))
        connection.execute(f"ALTER SYSTEM RESET {name}")

    assert told == [level, None]


def test_a_transaction_that_stays_open_is_a_finding_once_it_holds_a_snapshot(run, frail_url, monkeypatch):
    monkeypatch.setattr(postgres_facts, "_LONG_OPEN_SECONDS", 0.0)
    told = []
    with psycopg.connect(**libpq(frail_url), application_name="pg_dump") as connection:
        pid = connection.info.backend_pid
        for isolation in ("READ COMMITTED", "REPEATABLE READ"):
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
            connection.execute("SELECT 1")
            found = found_in(run("doctor", "--json", INBOX_URL=frail_url), everything=True)
            told.append(found.get("postgres-open-transaction", {}).get("what"))
            connection.rollback()

    assert told[0] is None
    assert told[1].startswith(f"a transaction of pg_dump (pid {pid}) has been open for ")


# --- handlers and deliveries ----------------------------------------------------------------------


@pytest.fixture
def shop(app_with, run):
    """Makes a Flask app with one handler; `examine` runs its doctor."""

    def make(**more):
        handlers = Handlers()
        handlers.on(InvoiceApproved, name="approve", timeout_seconds=30)(lambda event: None)
        app = app_with(**{"handlers": [handlers], "BILLHOOK_ENGINE": "worker", **more})
        inbox = app.extensions["billhook"].inbox
        inbox.record_worker(WorkerRecord("a", "worker", 1, datetime.now(UTC)), datetime.now(UTC))
        return app

    return make


def examine(app, *arguments: str) -> dict[str, dict[str, str]]:
    return found_in(app.test_cli_runner().invoke(args=["billhook", "doctor", "--json", *arguments]))


def test_handlers_without_a_time_out_are_a_finding_that_names_some(shop):
    handlers = Handlers()
    for number in range(10):
        handlers.on_any(name=f"slow{number}")(lambda event: None)

    found = examine(shop(handlers=[handlers]))

    assert set(found) == {"handler-without-timeout"}
    assert found["handler-without-timeout"]["what"].endswith("slow7 and 2 more without timeout_seconds")


def test_what_waits_for_a_handler_that_was_renamed_is_a_finding_until_its_alias_is_there(shop):
    old, renamed, again = Handlers(), Handlers(), Handlers()
    old.on_any(name="billing.old", timeout_seconds=30)(lambda event: 1 / 0)
    renamed.on_any(name="billing.new", timeout_seconds=30)(lambda event: None)
    again.on_any(name="billing.new", aliases=["billing.old"], timeout_seconds=30)(lambda event: None)
    app = shop(handlers=[old])
    deliver(app, b"{}", "PingTest")
    get_state(app).handle_due()
    assert examine(app) == {}

    found = examine(shop(handlers=[renamed]))

    assert set(found) == {"handler-missing"}
    told = found["handler-missing"]
    assert told["what"] == "1 run waits for billing.old, and no handler has this name"
    assert 'add aliases=["billing.old"] there' in told["remedy"]
    assert "billhook deliveries discard --handler billing.old --reason removed" in told["remedy"]
    assert examine(shop(handlers=[again])) == {}


def test_what_is_dead_of_a_handler_that_was_renamed_is_a_finding_too(shop):
    old, renamed, again = Handlers(), Handlers(), Handlers()
    old.on_any(name="billing.old", timeout_seconds=30, retry=[])(lambda event: 1 / 0)
    renamed.on_any(name="billing.new", timeout_seconds=30)(lambda event: None)
    again.on_any(name="billing.new", aliases=["billing.old"], timeout_seconds=30)(lambda event: None)
    app = shop(handlers=[old])
    for number in range(2):
        deliver(app, b"{}", "PingTest", message_id=f"m{number}")
    get_state(app).handle_due()
    dead = examine(app)

    found = examine(shop(handlers=[renamed]))

    assert found.keys() - dead.keys() == {"handler-missing"}
    told = found["handler-missing"]
    assert told["what"] == "2 runs of billing.old are dead, and no handler has this name"
    assert told["why"] == "a replay leaves dead runs as they are"
    assert "billhook deliveries replay --handler billing.old --to NEW`" in told["remedy"]
    assert told["remedy"].endswith("billhook deliveries replay --state dead --handler billing.old`")
    assert examine(shop(handlers=[again])) == dead


def test_handlers_of_an_app_are_an_error_outside_it(run, examined, tmp_path):
    mounted = "from billhook import Billhook\nhooks = Billhook(handlers=[handlers])\ndef create_app(): ...\n"
    (tmp_path / "of_an_app.py").write_text(HANDLERS + mounted)

    found = examined(HANDLERS="of_an_app.py")

    told = "start the worker as `flask --app of_an_app billhook worker`"
    assert [told in each["what"] for each in found.values() if each["level"] == "error"] == [True]
    for command in (["handlers"], ["worker", "--drain"]):
        refused = run(*command, HANDLERS="of_an_app.py", SECRETS=SECRET)
        assert (refused.exit_code, told in refused.stderr) == (2, True), command
    assert run("events", "of_an_app.py").exit_code == 0


def test_what_arrives_for_no_handler_is_a_finding(shop):
    app = shop()
    deliver(app, b"{}", "PingTest")

    assert examine(app)["type-unhandled"]["what"].endswith("types without a handler: PingTest (1)")


def test_of_a_type_whose_handler_is_gone_only_what_got_none_is_counted(shop):
    before, after = Handlers(), Handlers()
    before.on(PingTest, name="answer", timeout_seconds=30)(lambda event: None)
    after.on(InvoiceApproved, name="approve", timeout_seconds=30)(lambda event: None)
    with_it, without = shop(handlers=[before]), shop(handlers=[after])
    for number in range(3):
        deliver(with_it, b"{}", "PingTest", message_id=f"handled-{number}")
    get_state(with_it).handle_due()
    handled = examine(without)
    deliver(without, b"{}", "PingTest", message_id="missed")
    get_state(without).handle_due()

    assert "type-unhandled" not in handled
    assert examine(without)["type-unhandled"]["what"].endswith("types without a handler: PingTest (1)")


def test_sources_that_share_a_secret_are_a_finding(shop):
    jwt = BodyJWT(algorithm="HS256")
    eu = Source("eu", scheme=TimestampedHMAC(), secrets=[SECRET])
    us = Source(
        "us", scheme=jwt, secrets=["k3J9x_fL2pQ8vR5tZ7mW4nB6cY1d", {"a": "k3J9x_fL2pQ8vR5tZ7mW4nB6cY1e"}]
    )
    old = Source(
        "old", scheme=BodyHMAC("X", replay_protection="dedupe-only"), secrets=["gX8f2mQz7LkP4vRt9WnY3bCd"]
    )

    found = examine(shop(sources=[eu, us, old]))

    assert set(found) == {"secret-shared", "replay"}
    assert found["secret-shared"]["what"] == "the sources 'default' and 'eu' share a secret"
    assert found["replay"]["what"] == "the source 'old' signs no time (body-hmac)"


def test_an_app_that_cannot_be_loaded_is_one_finding(run, tmp_path, monkeypatch):
    from flask.cli import FlaskGroup

    (tmp_path / "broken.py").write_text("from flask import Flask\n1 / 0\n")
    from click.testing import CliRunner

    result = CliRunner().invoke(FlaskGroup(), ["--app", "broken", "billhook", "doctor", "--json"])

    (found,) = json.loads(result.stdout)["findings"]
    assert result.exit_code == 1
    assert "ZeroDivisionError" in found["what"]


def test_unknown_fields_values_and_types_are_told_with_examples_and_the_change(shop):
    app = shop()
    approved = strict_json.loads(sample(InvoiceApproved).to_json())
    changed = strict_json.loads(sample(InvoicePaymentStatusChanged).to_json())
    body = strict_json.dumps({**approved, "discountCode": "\x1b[31mSUMMER" + "x" * 100})
    deliver(app, body, "InvoiceApproved")
    for status in ("Refunded", "Paid"):
        deliver(app, strict_json.dumps({**changed, "billingStatus": status}), "InvoicePaymentStatusChanged")
    for name, sent in (("BrandNew", b"{}"), ("", b"{}"), ("PingTest", b"{broken"), ("PingTest", b"[]")):
        deliver(app, sent, name)

    result = app.test_cli_runner().invoke(args=["billhook", "doctor", "--json"])

    told = json.loads(result.stdout)["findings"]
    notes = {one["code"]: one for one in told if one["code"].startswith(("unknown", "no-type"))}
    assert len([one for one in told if one["code"] in notes]) == 4
    assert [(code, one["level"]) for code, one in sorted(notes.items())] == [
        ("no-type", "warning"),
        ("unknown-field", "note"),
        ("unknown-type", "note"),
        ("unknown-value", "note"),
    ]
    field, brand_new = notes["unknown-field"], notes["unknown-type"]
    assert "in 1 of the newest deliveries" in field["what"]
    assert ("SUMMERx" in field["what"], "\x1b" in field["what"]) == (True, False)
    assert len(field["what"]) < 200
    assert field["remedy"].endswith("discount_code: StrictStr | None = None")
    assert notes["unknown-value"]["remedy"].endswith(": REFUNDED = 'Refunded'")
    assert "class BrandNew(Event)" in brand_new["file"]
    assert "save this file, and name it with your handlers" in brand_new["remedy"]


def test_a_class_of_ones_own_need_not_list_what_a_sender_sends(shop):
    class PartOfAnOrder(Event, type="order.part"):
        id: str

    app = shop()
    try:
        deliver(app, b'{"id": "o-1", "theirs": 1, "lines": [{"sku": "a"}]}', "order.part")
        assert "unknown-field" not in examine(app)
    finally:
        del _registered["order.part"]


def test_what_billhook_send_sent_tells_nothing_of_the_service(shop):
    app = shop()
    sent = app.test_cli_runner().invoke(
        args=["billhook", "send", "PingTest", "--file", "-"], input='{"mine": 1}'
    )
    assert sent.exit_code == 0, sent.output

    assert "unknown-field" not in examine(app)
    deliver(app, b'{"theirs": 1}', "PingTest", message_id="of-the-service")
    assert "theirs" in examine(app)["unknown-field"]["what"]


def test_the_sample_is_bounded(shop):
    app = shop()
    inbox = app.extensions["billhook"].inbox
    for number in range(60):
        deliver(app, b'{"n": %d}' % number, "PingTest", message_id=f"m{number}")
    change(inbox_file(app), "UPDATE delivery SET state = 'pruned' WHERE id = 60")

    assert [each.delivery_id for each in newest_deliveries(inbox, 3, 1_000)] == [59, 58, 57]
    assert len(newest_deliveries(inbox, 100, 1_000_000)) == 59
    assert len(newest_deliveries(inbox, 100, 95)) == 95 // len(b'{"n": 59}')
    assert "unknown-field" not in examine(app, "--sample", "0")


def test_gunicorns_settings_are_read_where_gunicorn_looks_or_where_it_is_told(examined, inbox, tmp_path):
    (tmp_path / "gunicorn.conf.py").write_text('worker_class = "sync"\nkeepalive = 75\n')
    (tmp_path / "other.py").write_text("preload_app = 1 / 0\n")

    assert set(examined()) == {"gunicorn-worker-class"}
    assert set(examined("--gunicorn", "other.py")) == {"gunicorn-file"}


def test_a_settings_file_that_others_may_write_is_executed_only_where_it_is_named(examined, inbox, tmp_path):
    file, trace = tmp_path / "gunicorn.conf.py", tmp_path / "trace"
    file.write_text(f"open({str(trace)!r}, 'w').close()\nworker_class = 'asgi'\nkeepalive = 75\n")
    file.chmod(0o666)

    found = examined()
    executed = trace.exists()
    named = examined("--gunicorn", str(file))

    assert (found["gunicorn-file"]["level"], executed) == ("warning", False)
    assert (set(named), trace.exists()) == ({"gunicorn-worker-class"}, True)


def test_a_clock_that_is_off_shows_in_what_was_stored(shop):
    app = shop()
    body = sample(InvoiceApproved).to_json()
    for number in range(6):
        at = datetime.now(UTC) - timedelta(seconds=120)
        deliver(app, body, "InvoiceApproved", message_id=f"m{number}", at=at)

    assert set(examine(app)) == {"clock"}


def test_the_page_lists_each_finding():
    source = Path(billhook.__file__).parent / "cli"
    parts = [*(source.parent / "doctor").glob("*.py"), *(source.parent / "inbox").glob("*/facts.py")]
    text = "".join(path.read_text() for path in parts)
    made = set(re.findall(r'(?:Finding|Problem)\(\s*"(?:error|warning|note)"[^,]*,\s*"([a-z-]+)"', text))
    made |= {f"{what}-{access}" for what in ("secret-file", "inbox-mode") for access in ("read", "write")}
    made |= condition_codes()
    page = (source / "README.md").read_text().partition("## What doctor finds")[2]

    listed = set(re.findall(r"`([a-z]+(?:-[a-z]+)*)`", page.partition("|---|---|")[2]))

    assert len(made) > 30
    assert made == listed


COMMAND = re.compile(r"billhook ([a-z]+(?: signature)?)")


def remedies(name):
    """The commands that doctor's own findings name about a condition."""
    words = _WORDS.get(name)
    return set() if words is None else set(COMMAND.findall(words.remedy))


def test_no_advice_leads_back_to_itself():
    of_status = {one.name: one.first_command("h").split()[0] for one in CONDITIONS}
    shown = {one.name for one in CONDITIONS} - {*_OTHER_CHECKS, *_COUNTED} - {one.name for one in LIMITS}
    of_doctor = {name: remedies(name) if name in _WORDS else {of_status[name]} for name in shown}
    parts = [*Path(billhook.__file__).parent.glob("doctor/*.py"), *INBOX.glob("*/facts.py")]

    assert [name for name, command in of_status.items() if command == "status"] == []
    assert [name for name, commands in of_doctor.items() if commands & {"doctor", "status"}] == []
    # Of these doctor says that status lists them.
    assert [name for name in _COUNTED if of_status[name] == "doctor"] == []
    # With FILE, doctor finds more; what it says of other findings is never to run it again.
    again = [
        found for path in parts for found in re.findall(r"`billhook doctor[^`]*`", path.read_text()[200:])
    ]
    assert {*again} == {"`billhook doctor FILE`", "`billhook doctor signature --request FILE`"}


@pytest.mark.parametrize("bare_url", ["postgresql"], indirect=True)
def test_sequences_behind_the_rows_are_found_and_the_line_that_mends_them(run, inbox_url):
    opened = open_inbox(place_of(inbox_url))
    found = []

    def examine():
        result = run("doctor", "--json", INBOX_URL=inbox_url, SECRETS=SECRET, ENGINE="inline")
        found.append(found_in(result).get("postgres-sequences"))

    examine()  # of tables without a row, whose sequences were never used
    for number in range(5):
        opened.put(incoming(f"m{number}"))
    examine()
    change(place_of(inbox_url), "SELECT setval(pg_get_serial_sequence('delivery', 'id'), 2)")
    examine()
    (statement,) = re.findall(r"`(SELECT .*)`", found[-1]["remedy"])
    with pytest.raises(InboxUnavailable):
        opened.put(incoming("refused"))
    for one in statement.split("; "):
        change(place_of(inbox_url), one)
    examine()
    opened.put(incoming("stored"))
    opened.close()

    assert [found[0], found[1], found[3]] == [None] * 3
    assert found[2]["level"] == "error"
    assert re.search(r"delivery_id_seq is at 2, and \S*delivery has 5", found[2]["what"])


def test_it_changes_nothing(run, tmp_path, secret_file):
    secrets = secret_file(SECRET)
    before = sorted(tmp_path.iterdir())

    run("doctor", SECRETS_FILE=secrets)

    assert sorted(tmp_path.iterdir()) == before
    assert Path(secrets).read_text() == SECRET + "\n"


# --- refusals -----------------------------------------------------------------------------------------


def put(minutes_ago):
    return lambda inbox: inbox.put(incoming("k", at=datetime.now(UTC) - timedelta(minutes=minutes_ago)))


def count_duplicate(inbox):
    inbox.count(Counted.DUPLICATE, datetime.now(UTC), source="default", event_type="PingTest")


def count_accepted(inbox):
    accepted = Counts()
    accepted.add(Counted.ACCEPTED, datetime.now(UTC), source="default", event_type="PingTest")
    inbox._write_counts(accepted)


NOT_SINCE = "about 83 signatures have matched no secret since the last accepted delivery"
REFUSALS = [
    ("stale", 3, None, "clock-refusals", ["3 genuine deliveries were refused", "412 s behind this clock"]),
    ("future", 1, None, "clock-refusals", ["1 genuine delivery was refused: the signed time is 412 s ahead"]),
    ("mismatch", 2, None, "refused-all", ["2 signatures matched no secret", "doctor signature"]),
    # Not both secrets in both options, which would be refused.
    ("mismatch", 83, put(10), "refused-since", [NOT_SINCE, "old one second in BILLHOOK_SECRETS_FILE, and"]),
    # Controls: anyone can send wrong signatures. Those of deliveries that no worker has read were good.
    ("mismatch", 1, put(0), None, []),
    ("mismatch", 4, put(10), None, []),
    ("mismatch", 83, put(-1), None, []),
    ("mismatch", 1, count_duplicate, None, []),
    ("mismatch", 2, count_accepted, None, []),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "number", "before", "code", "told"), REFUSALS)
def test_refusals_tell_of_a_clock_or_a_secret(examined, inbox, cause, number, before, code, told):
    if before is not None:
        before(inbox)
    seconds = None if cause == "mismatch" else 412.0
    for _ in range(number):
        now = datetime.now(UTC)
        inbox.count(Counted.REFUSED, now, source="default", cause=cause, duration_seconds=seconds)
    inbox._counts.close()

    found = {name: one for name, one in examined().items() if "refus" in name}

    assert [(name, one["level"]) for name, one in found.items()] == ([(code, "note")] if code else [])
    for words in told:
        assert words in f"{found[code]['what']}; {found[code]['remedy']}"


def test_the_remedy_of_a_paused_handler_is_a_command_as_a_shell_takes_it(examined, inbox):
    inbox.pause_handler("book & send", "closed", datetime.now(UTC))

    assert examined()["handler-paused"]["remedy"] == "`billhook handlers resume 'book & send'`"


def test_deliveries_that_need_attention_are_a_note_that_leads_to_status(examined, inbox):
    inbox.pause_handler("shop.book", None, datetime.now(UTC))  # which has a finding of its own
    inbox.put(incoming("k", at=datetime.now(UTC) - timedelta(hours=1)))

    found = examined()["see-status"]

    assert found["level"] == "note"
    assert found["what"] == "deliveries need attention: a delivery has waited for a worker for 1 h"
    assert found["remedy"].startswith("`billhook status` lists")
