"""Notifications: one message for each issue, to a real mail server and a real HTTP endpoint."""

from __future__ import annotations

import html
import json
import logging
import re
import socket
import sys
from datetime import timedelta
from email import message_from_string, policy
from pathlib import Path

import pytest
import requests
from aiosmtpd.controller import Controller
from sqlalchemy import update
from werkzeug import Response

from billhook import Handlers
from billhook.basics.process_identity import own_process
from billhook.engines import watch
from billhook.errors import ConfigError, InboxUnavailable, MissingExtra
from billhook.errors.program import install_command
from billhook.events import PingTest
from billhook.inbox import RunState, WorkerRecord
from billhook.inbox.running.leases import LOST
from billhook.inbox.tables.schema import notifier as notifier_table
from billhook.inbox.watching import notifications
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import IssueState, change_issue, list_issues
from billhook.inbox.watching.notifications import AddressState, take_lease
from billhook.inbox.watching.occurrences import IssueKind
from billhook.notify import Notifier, NotifyAddress, Writer, read_addresses
from billhook.notify import notifier as notifier_module
from billhook.notify.addresses import _MAKES_ANEW
from billhook.notify.messages import MOST_PER_HOUR
from support.apps import deliver
from support.examples import free_port
from support.inbox_view import NOON
from support.processes import until
from support.runs import claim, failed, planned, settle
from support.signing import SECRET


def fail(inbox, key, clock, *, error="ValueError: Acme has no plan", state=RunState.DUE, **facts):
    failed(inbox, key, (clock.now() - NOON).total_seconds(), state, handler="shop.book", error=error, **facts)


def fail_and_look(inbox, clock, key, **facts):
    """A failure, and a look for issues."""
    fail(inbox, key, clock, **facts)
    update_issues(inbox, clock.now())


@pytest.fixture
def made(inbox, frozen_clock, hook, notify_file):
    addresses, _ = read_addresses(notify_file(hook.url))
    return notifier(inbox, addresses, frozen_clock, "https://shop.example/billhook/")


def notifier(inbox, addresses, clock, dashboard_url=None):
    return Notifier(inbox, addresses, clock.now, Writer(dashboard_url))


def logged(caplog):
    """What is logged, but for the lines of the endpoint itself."""
    return "\n".join(record.getMessage() for record in caplog.records if record.name != "werkzeug")


def only_failures(inbox):
    return [one for one in list_issues(inbox) if one.kind is IssueKind.FAILURE]


def test_an_issue_is_told_once_however_often_it_happens(inbox, frozen_clock, made, hook):
    assert made.send_due() == 0  # all was well from the start: nothing to say
    fail(inbox, "a", frozen_clock)
    fail_and_look(inbox, frozen_clock, "b", error="ValueError: Beta has no plan")

    assert made.send_due() == 1
    fail_and_look(inbox, frozen_clock, "c")
    assert made.send_due() == 0

    (one,) = only_failures(inbox)
    assert hook.titles == ["[billhook] warning: shop.book fails: ValueError"]
    assert hook.bodies[0].splitlines() == [
        "shop.book fails: ValueError",
        "at shop.py:7 in book",
        "2 times so far, 2 deliveries",
        "",
        f"billhook failures show {one.id}",
        "billhook runbook runs-are-dead",
        f"https://shop.example/billhook/failures/{one.id}",
    ]
    assert "Acme" not in "".join(hook.bodies + hook.titles)


def test_a_message_about_what_was_handled_meanwhile_says_so(inbox, frozen_clock, made, hook):
    fail_and_look(inbox, frozen_clock, "a")
    frozen_clock.advance(seconds=60)
    seconds = (frozen_clock.now() - NOON).total_seconds()
    settle(inbox, claim(inbox, 1, seconds), seconds=seconds)

    made.send_due()

    assert hook.titles == ["[billhook] warning: shop.book fails: ValueError, handled since"]
    assert "nothing of it is left: what failed was handled, or discarded, since" in hook.bodies[0]


def test_it_is_told_again_when_it_opens_again_and_when_all_is_well(inbox, frozen_clock, made, hook):
    fail_and_look(inbox, frozen_clock, "a")
    made.send_due()
    (one,) = only_failures(inbox)
    change_issue(inbox, one.id, IssueState.ACKNOWLEDGED, frozen_clock.now(), who="ada")
    assert made.send_due() == 0  # not well, as long as somebody works on it
    change_issue(inbox, one.id, IssueState.RESOLVED, frozen_clock.now(), who="ada")

    assert [made.send_due(), made.send_due()] == [1, 0]
    frozen_clock.advance(seconds=600)
    fail_and_look(inbox, frozen_clock, "b")
    assert [made.send_due(), made.send_due()] == [1, 0]

    assert ["it happens again: first seen 20" in body for body in hook.bodies] == [False, False, True]
    assert hook.titles == [
        "[billhook] warning: shop.book fails: ValueError",
        "[billhook] all is well again",
        "[billhook] warning: shop.book fails: ValueError",
    ]


def test_each_address_has_ten_messages_an_hour_the_last_a_summary(inbox, frozen_clock, hook, notify_file):
    dead = f"json://127.0.0.1:{free_port()}/"
    made = notifier(inbox, read_addresses(notify_file(dead, hook.url))[0], frozen_clock)
    for number in range(30):
        fail(inbox, f"k{number}", frozen_clock, group=f"bug {number}", error=f"Error{number}: x")
        frozen_clock.advance(seconds=1)
    update_issues(inbox, frozen_clock.now())

    made.send_due()

    assert len(hook.titles) == MOST_PER_HOUR
    assert hook.titles[-1] == "[billhook] warning: 21 more issues are open"
    assert "shop.book fails: Error" in hook.bodies[-1]
    assert "and 1 more" in hook.bodies[-1]
    fail_and_look(inbox, frozen_clock, "later", group="another", error="Later: x")
    assert made.send_due() == 0
    frozen_clock.advance(seconds=3_601)
    assert made.send_due() == 1
    assert hook.titles[-1] == "[billhook] warning: shop.book fails: Later"


@pytest.mark.parametrize(
    ("failing_for", "tries"),
    [
        (timedelta(minutes=1), 3),  # after 0, 15 and 45 s
        (timedelta(hours=1), 42),  # every 90 s: told within two minutes of the service's return
        (timedelta(days=1), 962),
        (timedelta(days=8), 962 + 7 * 144),  # no service is called every minute for days
    ],
)
def test_an_address_that_fails_is_tried_less_and_less_often_for_as_long_as_it_fails(failing_for, tries):
    state, now, number = AddressState(), NOON, 0
    while now <= NOON + failing_for:
        state, number = state.refused(now), number + 1
        assert state.is_waiting(state.retry_at - timedelta(seconds=1))
        assert not state.is_waiting(state.retry_at)
        now = state.retry_at

    assert (number, state.failing_since) == (tries, NOON)


def test_a_message_that_is_refused_is_tried_again_until_it_arrives_once(
    inbox, frozen_clock, made, hook, caplog
):
    fail_and_look(inbox, frozen_clock, "a")
    hook.answers = [503] * 9
    taken = []
    for _ in range(60):
        taken.append(made.send_due())
        frozen_clock.advance(seconds=15)

    assert (sum(taken), hook.titles) == (1, ["[billhook] warning: shop.book fails: ValueError"])
    warnings = [record.getMessage() for record in caplog.records if record.name == "billhook.notify"]
    assert len(warnings) == 4  # of the 1st, 2nd, 4th and 8th failure
    text = "could not notify the address on line 3 of BILLHOOK_NOTIFY_FILE (json), to be tried again: "
    assert warnings[0].startswith(text)
    assert hook.token not in logged(caplog)


def test_an_address_that_takes_messages_again_gets_one_summary_of_all_that_is_open(
    inbox, frozen_clock, made, hook, notify_file
):
    fail_and_look(inbox, frozen_clock, "a")
    hook.answers = [503]
    made.send_due()
    for number in range(3):
        fail(inbox, f"k{number}", frozen_clock, group=f"bug {number}", error=f"Error{'XYZ'[number]}: x")
    fail_and_look(inbox, frozen_clock, "resolved", group="resolved meanwhile", error="Gone: x")
    fail_and_look(inbox, frozen_clock, "kills", error=LOST, group=LOST)
    (gone,) = [one for one in only_failures(inbox) if one.title.startswith("Gone")]
    change_issue(inbox, gone.id, IssueState.RESOLVED, frozen_clock.now(), who="ada")
    # Another process goes on: what failed, and until when it waits, is in the inbox.
    made.stop()
    other = notifier(inbox, read_addresses(notify_file(hook.url))[0], frozen_clock)
    frozen_clock.advance(seconds=14)
    assert other.send_due() == 0
    frozen_clock.advance(seconds=1)

    assert [other.send_due(), other.send_due()] == [1, 0]

    assert hook.titles == ["[billhook] critical: 5 issues are open"]
    assert "shop.book fails: ErrorX\n" in hook.bodies[0]
    assert "This address has taken no message since 2026-01-15 12:00 UTC." in hook.bodies[0]
    assert "Gone" not in hook.bodies[0]


def test_of_two_addresses_the_one_that_has_it_is_not_told_again_for_days(
    inbox, frozen_clock, hook, notify_file
):
    dead = f"json://127.0.0.1:{free_port()}/"
    fail_and_look(inbox, frozen_clock, "a")
    for _ in range(30):
        made = notifier(
            inbox, read_addresses(notify_file(hook.url, dead))[0], frozen_clock
        )  # each a new process
        made.send_due()
        made.stop()
        frozen_clock.advance(seconds=7_200)

    assert hook.titles == ["[billhook] warning: shop.book fails: ValueError"]


def test_a_process_that_takes_over_repeats_nothing_and_need_not_wait(inbox, frozen_clock, hook, notify_file):
    dead = f"json://127.0.0.1:{free_port()}/"
    addresses, _ = read_addresses(notify_file(dead, hook.url))
    first, second = (notifier(inbox, addresses, frozen_clock) for _ in range(2))
    fail_and_look(inbox, frozen_clock, "a")
    first.send_due()
    second.send_due()
    assert len(hook.titles) == 1

    first.stop()
    fail_and_look(inbox, frozen_clock, "b", group="another", error="Later: x")
    second.send_due()

    assert hook.titles[1:] == ["[billhook] warning: shop.book fails: Later"]


def test_an_issue_that_opens_before_the_row_is_taken_is_not_overlooked(
    inbox, frozen_clock, made, hook, monkeypatch
):
    fail_and_look(inbox, frozen_clock, "a")
    made.send_due()
    (one,) = only_failures(inbox)
    change_issue(inbox, one.id, IssueState.RESOLVED, frozen_clock.now(), who="ada")
    write = inbox.database.write

    def late():
        monkeypatch.setattr(inbox.database, "write", write)
        fail_and_look(inbox, frozen_clock, "b", group="another bug", error="KeyError: x")
        return write()

    monkeypatch.setattr(inbox.database, "write", late)

    made.send_due()

    assert hook.titles[1:] == ["[billhook] warning: shop.book fails: KeyError"]


def test_a_subject_says_severity_environment_and_host_and_mentions_nobody(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "web-1")

    assert Writer(environment="live").title("x", "critical") == "[billhook live web-1] critical: x"
    assert Writer().title("all is well again") == "[billhook web-1] all is well again"
    assert "\n" not in Writer(environment="a\nBcc: b@example.com").title("x")


WHY = {  # what an address failed with, by its credentials, and what is told of it
    "user:p%40ss%20word": {
        "HTTP 401 for p@ss word": "HTTP 401 for ***",
        "HTTP 401 for p@ss+word": "HTTP 401 for ***",
        "HTTP 401 for P%40SS%20WORD": "HTTP 401 for ***",
        "x" * 190 + " p@ss word": "x" * 190 + "…",
    },
    "user:w%C3%B6rt": {r"refused {'password': 'w\u00f6rt'}": "refused {'password': '***'}"},
    "user:pass-word": {
        "Authorization: Basic dXNlcjpwYXNzLXdvcmQ=": "Authorization: Basic ***",
        "AUTH PLAIN AHVzZXIAcGFzcy13b3Jk": "AUTH PLAIN ***",
    },
    "user:abc": {"login failed: abc": "login failed: ***"},
    # A short part masks no piece of a word.
    "user:re": {"connection refused: re": "connection refused: ***"},
}


@pytest.mark.parametrize("credentials", WHY)
def test_why_an_address_failed_is_told_without_its_credentials_in_any_spelling(credentials, monkeypatch):
    address = NotifyAddress(f"json://{credentials}@127.0.0.1:9/", 1)
    for text, told in WHY[credentials].items():

        def refuse(text=text, **_):
            raise OSError(text)

        monkeypatch.setattr(address._service, "notify", refuse)
        assert address.send("title", "body") == f"OSError: {told}"


def test_a_redirect_is_not_followed_and_not_taken_for_a_message(inbox, frozen_clock, httpserver, notify_file):
    elsewhere = httpserver.url_for("/login")
    httpserver.expect_request("/hook").respond_with_response(
        Response(status=301, headers={"Location": elsewhere})
    )
    httpserver.expect_request("/login").respond_with_data("please log in")
    url = f"json://{httpserver.host}:{httpserver.port}/hook?+X-Tok=SECRETTOK"

    (address,), _ = read_addresses(notify_file(url))

    assert "301" in address.send("title", "body")
    assert [request.path for request, _ in httpserver.log] == ["/hook"]


def test_an_issue_that_is_acknowledged_meanwhile_is_not_all_well(
    inbox, frozen_clock, made, hook, monkeypatch
):
    fail_and_look(inbox, frozen_clock, "k1")
    made.send_due()
    fail_and_look(inbox, frozen_clock, "k2", group="another bug")
    listed = notifications.list_issues

    def late(*arguments, **more):
        for one in only_failures(inbox):
            change_issue(inbox, one.id, IssueState.ACKNOWLEDGED, frozen_clock.now(), who="ops")
        return listed(*arguments, **more)

    monkeypatch.setattr(notifications, "list_issues", late)

    assert [made.send_due(), made.send_due()] == [0, 0]
    assert len(hook.titles) == 1


def test_a_new_issue_is_told_beside_more_open_ones_than_a_list_shows(
    inbox, frozen_clock, made, hook, monkeypatch
):
    monkeypatch.setattr("billhook.inbox.watching.issues.MOST", 2)
    for number in range(4):
        fail_and_look(inbox, frozen_clock, f"k{number}", group=f"bug {number}")
        assert made.send_due() == 1
    assert len(hook.titles) == 4


def test_one_process_sends_and_another_goes_on_when_it_is_gone(inbox, frozen_clock, hook, made):
    fail_and_look(inbox, frozen_clock, "a")
    assert take_lease(inbox, "first", frozen_clock.now())
    assert not take_lease(inbox, "second", frozen_clock.now())
    assert made.send_due() == 0

    frozen_clock.advance(seconds=61)  # the first is gone

    assert made.send_due() == 1


def test_a_process_that_died_while_it_sent_holds_up_nobody(inbox, frozen_clock, hook, made):
    fail_and_look(inbox, frozen_clock, "a")
    runs = own_process()
    assert take_lease(inbox, f"runs {runs}", frozen_clock.now())
    assert made.send_due() == 0

    has_ended = runs._replace(pid_ticks=runs.pid_ticks - 1)
    inbox.apply(update(notifier_table).values(owner=f"died {has_ended}"))

    assert made.send_due() == 1


def test_a_process_that_has_sent_leaves_the_next_message_to_any(inbox, frozen_clock, hook, made):
    fail_and_look(inbox, frozen_clock, "a")
    assert made.send_due() == 1

    assert take_lease(inbox, "another", frozen_clock.now())


class SlowAddress:
    """An address that takes a message in some seconds; then something else happens."""

    name = "slow"

    def __init__(self, number, clock, seconds=0, then=lambda: None):
        self.number, self.clock, self.seconds, self.then = number, clock, seconds, then
        self.titles = []

    def send(self, title, body, *, good=False):
        self.titles.append(title.partition("] ")[2])
        self.clock.advance(seconds=self.seconds)
        self.then()


def test_no_other_process_goes_on_while_one_sends_for_minutes(inbox, frozen_clock):
    first = SlowAddress(1, frozen_clock, 6)
    other = notifier(inbox, [first], frozen_clock)
    slow = SlowAddress(2, frozen_clock, 30, then=other.send_due)
    for number in range(6):
        fail_and_look(inbox, frozen_clock, f"k{number}", group=f"bug {number}")

    notifier(inbox, [first, slow], frozen_clock).send_due()

    assert (len(first.titles), len(slow.titles)) == (6, 6)


def test_a_process_that_said_all_is_well_says_it_again_after_another_ones_message(inbox, frozen_clock):
    address = SlowAddress(1, frozen_clock)
    processes = [notifier(inbox, [address], frozen_clock) for _ in range(2)]
    for key in ("a", "b"):
        fail_and_look(inbox, frozen_clock, key)
        processes[0].send_due()
        frozen_clock.advance(seconds=121)
        change_issue(inbox, only_failures(inbox)[0].id, IssueState.RESOLVED, frozen_clock.now(), who="ada")
        processes[1].send_due()
        frozen_clock.advance(seconds=121)
        assert [one.send_due() for one in processes] == [0, 0]

    assert address.titles == ["warning: shop.book fails: ValueError", "all is well again"] * 2


def test_what_could_not_be_recorded_is_recorded_later_and_not_sent_again(inbox, frozen_clock, monkeypatch):
    address = SlowAddress(1, frozen_clock)
    made = notifier(inbox, [address], frozen_clock)
    fail_and_look(inbox, frozen_clock, "a")

    def away(*_, **__):
        raise InboxUnavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(notifier_module, "record_state", away)
        with pytest.raises(InboxUnavailable):
            made.send_due()

    assert [made.send_due(), made.send_due()] == [0, 0]
    frozen_clock.advance(seconds=121)
    notifier(inbox, [address], frozen_clock).send_due()

    assert len(address.titles) == 1


def test_a_mail_arrives(inbox, frozen_clock, notify_file):
    received = []

    class Mailbox:
        async def handle_DATA(self, server, session, envelope):  # noqa: N802
            received.append((envelope.rcpt_tos, envelope.content.decode()))
            return "250 OK"

    port = free_port()
    server = Controller(Mailbox(), hostname="127.0.0.1", port=port)
    server.start()
    try:
        url = f"mailto://127.0.0.1:{port}/?from=billhook@example.com&to=ops@example.com&mode=insecure"
        made = notifier(inbox, read_addresses(notify_file(url))[0], frozen_clock)
        fail_and_look(inbox, frozen_clock, "a")
        assert made.send_due() == 1
    finally:
        server.stop()

    ((to, text),) = received
    assert to == ["ops@example.com"]
    mail = message_from_string(text, policy=policy.default)
    assert mail.get_content_type() == "text/plain"
    assert "shop.book fails: ValueError\nat shop.py:7 in book\n" in mail.get_content().replace("\r\n", "\n")


MARKUP = "shop.create_app.<locals>.chase of *b* _c_ & <!channel> @everyone fails"


@pytest.mark.parametrize(
    ("url", "field", "escapes"),
    [
        ("tgram://123456789:abcdefg_hijklmnop/12315544/", "text", True),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general", "text", True),
        ("discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js", "content", False),
    ],
)
def test_what_looks_like_markup_in_a_message_stays_text(url, field, escapes, monkeypatch, notify_file):
    sent = []

    def post(address, data=None, **_):
        sent.append(json.loads(data))
        answer = requests.Response()
        answer.status_code, answer._content = 200, b"ok"
        return answer

    monkeypatch.setattr(requests, "post", post)
    monkeypatch.setattr(requests, "request", lambda _, address, **more: post(address, **more))
    (address,), _ = read_addresses(notify_file(url))

    assert address.send("[billhook] a <b> is open", f"{MARKUP}\nsecond line") is None

    (payload,) = sent
    texts = [payload.get(field), *(part.get(field) for part in payload.get("attachments", ()))]
    text = " ".join(filter(None, texts))
    shown = MARKUP.replace("@", "@\N{ZERO WIDTH SPACE}")
    assert (html.escape(shown, quote=False) if escapes else shown) in text
    assert "second line" in text
    assert "@everyone" not in text


def test_no_credential_is_in_a_log_at_any_level(inbox, frozen_clock, hook, made, caplog):
    caplog.set_level(logging.DEBUG)
    fail_and_look(inbox, frozen_clock, "a")

    made.send_due()

    assert len(hook.titles) == 1
    assert hook.token not in logged(caplog)
    assert hook.token not in repr(made.addresses)
    # The control: the user's own messages by apprise are logged as before.
    import apprise

    apprise.Apprise([hook.url]).notify(body="theirs")
    assert hook.token in logged(caplog)


@pytest.mark.parametrize("line", ["nonsense://secret-thing", "secret-thing"])
def test_a_line_that_is_no_address_is_named_without_its_words_and_the_others_are_used(
    app_with, cli_run, hook, notify_file, tmp_path, caplog, line
):
    path = notify_file(line, hook.url)
    why = "BILLHOOK_NOTIFY_FILE, line 3, is no address that apprise knows"

    app_with(BILLHOOK_NOTIFY_FILE=path)

    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.getMessage().startswith(f"addresses that are notified of issues: 1; {why}")
    options = {"NOTIFY_FILE": path, "SECRETS": SECRET, "INBOX_URL": f"sqlite:///{tmp_path}/billhook.db"}
    for command in (["notify", "test"], ["doctor"], ["check"]):
        tested = cli_run(*command, **options)
        assert tested.exit_code == 1
        assert why in " ".join(tested.output.split())
        assert "secret-thing" not in tested.output + caplog.text
    assert hook.titles == ["[billhook] a test message"]


REFUSED = {
    "slack://hunterTwo": "An invalid Slack (second) Token (None) was specified",
    "discord://hunterTwo": "An invalid Discord Webhook Token (None) was specified",
    "gotify://hunterTwo": "An invalid Gotify Token (None) was specified",
    "twilio://hunterTwo:secretToken@nothing": "An invalid Twilio Account SID (***) was specified",
    "mailto://hunterTwo:secretToken@": "Invalid ~From~ email specified",
    "matrix://hunterTwo:secretToken@": "Unparseable Matrix URL",
    "tgram://hunterTwo/": "Unparseable Telegram URL",
    "nonsense://hunterTwo/secretToken": "Unparseable URL",
}


@pytest.mark.parametrize("line", REFUSED)
def test_an_address_with_a_part_missing_is_refused_by_what_apprise_says_of_it(line):
    with pytest.raises(ConfigError) as caught:
        NotifyAddress(line, 7)

    start = f"BILLHOOK_NOTIFY_FILE, line 7, is no address that apprise knows ({REFUSED[line]}): write one for"
    assert str(caught.value).startswith(start)
    assert not any(part in str(caught.value) for part in ("hunterTwo", "secretToken"))


@pytest.mark.parametrize("login", [403, 200])
def test_a_matrix_address_makes_no_account_and_no_room(httpserver, login):
    def answer(request):
        paths.append(request.path)
        found = login if request.path.endswith("/login") else 404
        body = {"access_token": "t", "user_id": "@u:h", "home_server": "h"} if found == 200 else {}
        return Response(json.dumps(body), found, content_type="application/json")

    paths: list[str] = []
    httpserver.expect_request(re.compile(".*")).respond_with_handler(answer)
    address = NotifyAddress(f"matrix://bot:secretToken@{httpserver.host}:{httpserver.port}/#room?v=3", 1)

    for _ in range(2):
        assert address.send("title", "body") is not None

    assert any(path.endswith("/login") for path in paths)
    assert not any(path.endswith(("/register", "/createRoom")) for path in paths), paths


@pytest.mark.parametrize("name", _MAKES_ANEW)
def test_apprise_has_the_methods_by_which_matrix_makes_accounts_and_rooms(name):
    """The control: under other names they would not be found."""
    from apprise.plugins.matrix.base import NotifyMatrix

    assert callable(getattr(NotifyMatrix, name))


def test_a_file_that_others_may_write_or_that_is_not_there_is_refused(notify_file, tmp_path):
    path = notify_file("json://example.com/hook")
    Path(path).chmod(0o666)
    with pytest.raises(ConfigError, match="others may write it"):
        read_addresses(path)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_addresses(str(tmp_path / "missing.txt"))
    empty = tmp_path / "empty.txt"
    empty.touch(0o600)
    with pytest.raises(ConfigError, match="has no address"):
        read_addresses(str(empty))


def test_a_receiver_starts_without_a_file_that_cannot_be_read(app_with, tmp_path, caplog):
    app = app_with(BILLHOOK_NOTIFY_FILE=str(tmp_path / "missing.txt"))

    assert deliver(app, b"{}", "PingTest").status_code == 200
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "addresses that are notified of issues: 0; BILLHOOK_NOTIFY_FILE" in record.getMessage()
    assert "cannot be read: No such file" in record.getMessage()


def test_without_the_extra_the_option_is_refused_and_names_it(notify_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)

    with pytest.raises(MissingExtra, match=re.escape(install_command("notify"))):
        read_addresses(notify_file("json://example.com/hook"))


def test_the_command_says_for_each_address_whether_it_took_the_message(cli_run, hook, notify_file):
    path = notify_file(hook.url, "json://user:pass-word-1@127.0.0.1:9/hook")

    result = cli_run("notify", "test", NOTIFY_FILE=path, ENVIRONMENT="live")

    assert result.exit_code == 1
    first, second, *_ = result.stdout.splitlines()
    assert first == "line 3, json: sent"
    assert second.startswith("line 4, json: NOT sent: ")
    assert "pass-word-1" not in result.output
    assert hook.titles == ["[billhook live] a test message"]
    assert "BILLHOOK_NOTIFY_FILE is not set" in cli_run("notify", "test").output


@pytest.fixture
def cli_run(monkeypatch):
    from click.testing import CliRunner

    from billhook.cli import main

    def call(*arguments, **options):
        with monkeypatch.context() as patch:
            for name, text in options.items():
                patch.setenv(f"BILLHOOK_{name}", text)
            return CliRunner().invoke(main, list(arguments))

    return call


def test_an_app_with_the_option_has_its_worker_notify(running, hook, notify_file, monkeypatch):
    """The whole way: option, worker, maintenance, thread."""
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.1)
    handlers = Handlers()

    @handlers.on(PingTest, name="shop.ping", retry=[])
    def ping(event):
        raise LookupError("Acme")

    app = running(handlers, threads=1, BILLHOOK_ENGINE="worker", BILLHOOK_NOTIFY_FILE=notify_file(hook.url))
    deliver(app, b"{}", "PingTest")
    until(lambda: hook.titles, 30)

    assert hook.titles == ["[billhook] warning: shop.ping fails: LookupError"]


def test_each_kind_of_issue_is_named(inbox, frozen_clock, hook, notify_file):
    made = notifier(inbox, read_addresses(notify_file(hook.url))[0], frozen_clock)
    fail(inbox, "a", frozen_clock)
    fail(inbox, "b", frozen_clock, state=RunState.DEAD, group=None)
    planned(inbox, key="q", error='{"error": "no JSON", "details": []}')
    inbox.record_worker(WorkerRecord("host:1:x", "worker", 1, frozen_clock.now()), frozen_clock.now())
    frozen_clock.advance(seconds=400)
    update_issues(inbox, frozen_clock.now())

    made.send_due()

    (gone,) = (body for body in hook.bodies if body.startswith("no worker is alive"))
    assert "it happens again" not in gone
    assert sorted(title.removeprefix("[billhook] ") for title in hook.titles) == [
        "critical: no worker is alive",
        "warning: deliveries of PingTest are quarantined",
        "warning: shop.book fails: ValueError",
        "warning: shop.book: runs are dead",
    ]
    assert not any("https://" in body for body in hook.bodies)  # without the option there is no link


def test_a_message_has_the_severity_and_the_first_command_of_its_condition(
    inbox, frozen_clock, hook, notify_file
):
    made = notifier(inbox, read_addresses(notify_file(hook.url))[0], frozen_clock)
    fail_and_look(inbox, frozen_clock, "a", error=LOST, group=LOST)

    made.send_due()

    (one,) = list_issues(inbox)
    assert hook.titles == ["[billhook] critical: workers die while shop.book runs"]
    assert hook.bodies[0].splitlines()[-3:] == [
        "billhook handlers pause shop.book",
        f"billhook failures show {one.id}",
        "billhook runbook workers-die",
    ]


def test_nothing_is_written_while_nothing_is_due(inbox, frozen_clock, made):
    with inbox.database.write() as connection:
        connection.execute(update(notifier_table).values(owner="somebody"))

    made.send_due()

    with inbox.database.read() as connection:
        assert connection.execute(notifier_table.select()).one().owner == "somebody"
