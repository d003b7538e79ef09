"""What the pages show, also of what was sent to do harm; and what they never show."""

from __future__ import annotations

import html
import json
import re
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from billhook import Retry
from billhook.clock import FrozenClock
from billhook.events import sample
from billhook.events.customers import ContractCreated
from billhook.inbox import RunPlan, WorkerRecord
from billhook.inbox.operating.subscriptions import remember, terms_of
from billhook.inbox.reading.deliveries import details
from billhook.inbox.running.handler_lists import HandlerList
from billhook.inbox.watching import overview
from billhook.inbox.watching.issue_updates import update_issues
from support.apps import deliver
from support.dashboard import PAGES
from support.inbox_view import change, incoming
from support.runs import claim, handled, planned
from support.signing import APPROVED, SECRET

NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
HOSTILE = '"><script>alert(1)</script><svg/onload=alert(2)>\u202etxt.exe\u2066\x1b[31m'


def addresses(response, pattern: str) -> list[str]:
    return re.findall(rf'href="([^"]*{pattern}[^"]*)"', response.text)


# --- all pages ------------------------------------------------------------------------------------


BOOK, MAIL = "shop.book: retrying", "shop.mail: succeeded"
RUNBOOK = '<pre><code class="language-console">flask --app shop billhook failures\n</code></pre>'
SHOWN = [
    ("deliveries", [
        "InvoiceApproved inv_1 done",
        r"inv_1 retrying book retrying, (?:next in [\d.]+ s|due now) KeyError: 'no ledger\\nsecond ",
    ], [
        f'class="mark warn" role="img" aria-label="{BOOK}" title="{BOOK}"',
        f'class="mark good" role="img" aria-label="{MAIL}" title="{MAIL}"',
    ]),
    ("deliveries/1", [], [
        "<title>Delivery 1: inv_1",
        "flask --app shop billhook deliveries forward 1 --curl --to URL --secret-file FILE<",
    ]),
    ("deliveries/2", [r"raise type\(broken\[0\]\)", "the same order"], [
        'aria-label="shop.book: attempt 1 failed at ', "next attempt at ", 'class="hl-',
        "/billhook/deliveries/1",
    ]),
    ("deliveries/5", [r"Quarantined: the body is not UTF-8 \(byte 0\)", r"\\xff"], []),
    ("deliveries/7", ["It conflicts with delivery", "the same key"], []),
    ("failures", [
        "4 issues are not resolved",
        # The newest error in full, and what is the same for every customer.
        r"KeyError: 'b' KeyError: … .*in book shop\.book open, live 2 Failed attempts by hour: (?:0, )+2[ ,]",
        r"2(?:, 0)? (?:\d+ s ago|just now) [\d:]+ 2 deliveries ",
        r"RuntimeError: c .*in book shop\.book open, live 1 ",
    ], ['<svg class="spark"']),
    ("failures/{issue}", [
        "Of delivery 3 .", "failed attempts 2",
        "Failures KeyError: 'b' open, live .* every error KeyError: … ", r"raise type\(broken\[0\]\)",
        "Runbook: Runs are dead",
    ], [
        "Failed attempts: failed 2", RUNBOOK,
        "<strong>Never</strong> replay with <code>--all-handlers</code>",
    ]),
    ("handlers", [
        r"success succeeded retried .*shop\.book active .* 100 % \d 3 ",
        r"shop\.mail paused (?:\d+ s ago|just now): the ledger is closed", "without a handler .*PingTest",
    ], []),
]  # fmt: skip
"""Of each page what its text has, as patterns, and what its HTML has."""


def test_each_page_shows_what_happened(site):
    made = site()
    made.deliver()
    for error in (KeyError("no ledger\nsecond line"), KeyError("b"), RuntimeError("c\nmore")):
        made.broken[:] = [error]
        made.deliver()
    made.broken.clear()
    made.deliver(b'\xff{"a": 1, <script>')
    made.deliver(APPROVED.replace(b"09:30", b"09:31"), message_id="one")
    made.deliver(APPROVED, message_id="one")
    (issue,) = [one.id for one in made.issues() if "KeyError" in one.title]
    made.inbox.pause_handler("shop.mail", "the ledger is closed", datetime.now(UTC))

    for path, patterns, parts in SHOWN:
        page, text = made.get(path.format(issue=issue)).text, made.text(path.format(issue=issue))

        for pattern in patterns:
            assert re.search(pattern, " ".join(text.split())), (path, pattern)
        assert [part for part in parts if part not in page] == [], path
        assert "billhook/handlers/handler.py" not in page
    assert made.get("failures/nothing").status_code == 404


# --- deliveries -----------------------------------------------------------------------------------


def test_what_no_worker_has_read_is_not_taken_for_what_no_handler_has(site):
    made = site(BILLHOOK_ENGINE="worker")
    deliver(made.app)
    deliver(made.app, b"{}", "ContractActivated")
    made.inbox.put(incoming("waits"))
    unread = made.text("deliveries/1")

    assert "No worker has read it yet." in unread
    assert made.text("deliveries").count("not read yet") == 3
    made.state.handle_due()
    deliver(made.app, message_id="another")
    assert "not read yet" in made.text("deliveries")
    assert "No handler was called for this delivery." in made.text("deliveries/2")


def test_a_type_is_shown_as_unread_in_quotes_or_as_none(site):
    made = site(BILLHOOK_TYPE_FIELD="type", BILLHOOK_ENGINE="worker")
    for body in (b'{"type":"order <b>"}', b"{}"):
        assert deliver(made.app, body).status_code == 200

    unread = made.get("deliveries").text
    made.state.handle_due()
    read = made.get("deliveries").text
    pages = [" ".join(made.text(f"deliveries/{number}").split()) for number in (1, 2)]

    assert unread.count('<span class="dim">(not read yet)</span>') == 2
    assert "&#34;order &lt;b&gt;&#34;" in read
    assert read.count('<span class="dim">(no type)</span>') == 1
    assert 'type "order <b>"' in pages[0]
    assert "type (no type)" in pages[1]
    filtered = made.get("deliveries?type=order+%3Cb%3E").text
    assert re.findall(r'name="id" value="(\d+)"', filtered) == ["1"]


def test_filters_combine_and_the_command_says_the_same(site):
    made = site()
    made.deliver(message_id="msg_1")
    made.broken.append(KeyError("no ledger"))
    made.deliver(APPROVED.replace(b"inv_1", b"inv_2"), message_id="msg_2")
    made.deliver(b"{}", "PingTest", message_id="msg_3")

    for query, shown in {
        "": [3, 2, 1],
        "handler=shop.mail&error=LEDGER": [2],
        "search=inv_2&since=1h&until=2030-01-01": [2],
        "conflicts=1": [],
    }.items():
        response = made.get(f"deliveries?{query}")

        assert [int(each) for each in re.findall(r'name="id" value="(\d+)"', response.text)] == shown
        for pair in filter(None, query.split("&")):
            name, value = pair.split("=")
            assert f"--{name}" + ("" if name == "conflicts" else f" {value}") in response.text


def test_a_search_without_a_match_says_what_it_looked_at_and_links_to_what_comes_next(site):
    made = site()
    made.deliver()
    made.inbox.put(incoming("waits", body=b'{"invoiceId":"inv_8"}'))

    found, none, elsewhere = (
        made.get(f"deliveries?search={query}") for query in ("inv_8", "inv_<9>", "inv_1&state=dead")
    )

    assert re.findall(r'name="id" value="(\d+)"', found.text) == ["2"]
    assert "Searched: ids, keys and identifying values of deliveries received since" in none.text
    assert "the bodies of 1 that are not read yet." in none.text
    assert "/billhook/deliveries?contains=inv_%3C9%3E" in none.text
    assert "billhook reconcile --since" in none.text
    assert "left out by the other filters" not in none.text
    assert "left out by the other filters" in elsewhere.text


def test_a_filter_that_cannot_be_read_is_told_and_selects_nothing(site):
    made = site()
    made.deliver()

    response = made.get("deliveries?since=yesterday")

    assert response.status_code == 200
    assert '<p class="notice bad">since: ' in response.text
    assert 'name="id"' not in response.text


def test_an_id_that_is_none_is_a_bad_request_and_one_that_is_unknown_is_not_found(site):
    made = site()
    for before in ("x", "-1", "0", "9" * 30, "²"):
        assert made.get(f"deliveries?before={before}").status_code == 400
    for delivery_id in (7, 2**63 - 1, 2**63, 10**30):
        path = f"deliveries/{delivery_id}"
        for answer in (made.get(path), made.get(f"{path}/body"), made.post(f"{path}/replay")):
            assert (answer.status_code, f"There is no delivery {delivery_id} in" in answer.text) == (
                404,
                True,
            )


def test_the_list_goes_on_on_the_next_page_with_the_same_filters(site):
    made = site()
    for number in range(53):
        deliver(made.app, b"{}", "PingTest", message_id=f"msg_{number}")

    first = made.get("deliveries?type=PingTest")
    (address,) = addresses(first, 'deliveries\\?[^"]*before=')
    second = made.client.get(address.replace("&amp;", "&"))

    assert [len(re.findall(r'name="id" value=', one.text)) for one in (first, second)] == [50, 3]
    assert "type=PingTest" in address
    assert 'rel="next"' not in second.text
    assert "billhook deliveries list --type PingTest --after 4<" in second.text


def test_the_button_that_replays_all_says_how_many_match_unless_counting_takes_long(site, monkeypatch):
    made = site()
    for number in range(53):
        deliver(made.app, b"{}", "PingTest", message_id=f"msg_{number}")

    def button(query=""):
        found = re.search("Replay (all [^<]*)<", made.get(f"deliveries?{query}").text)
        return found and found[1]

    assert [button(), button("before=4")] == [None, None]  # of all there is, only by a filter
    assert [button("type=PingTest"), button("type=PingTest&before=4")] == ["all 53 that match"] * 2
    assert button("key=msg_7") == "all 1"
    monkeypatch.setattr("billhook.dashboard.deliveries.MOST_REPLAYED", 52)
    assert button("type=PingTest") == "all 52+ that match"
    monkeypatch.setattr("billhook.dashboard.deliveries.SEARCH_LIMIT", 53)
    assert [button("state=received"), button("type=PingTest")] == ["all 52+ that match", "all  that match"]


def test_all_of_a_page_are_selected_by_a_link(site):
    made = site()
    for _ in range(3):
        made.deliver()

    page = made.get("deliveries?type=InvoiceApproved").text
    (address,) = re.findall(r'href="([^"]*select=all[^"]*)"', page)
    selected = made.client.get(html.unescape(address)).text

    assert [len(re.findall(r'aria-label="delivery \d" checked', one)) for one in (page, selected)] == [0, 3]
    assert "type=InvoiceApproved" in address
    assert "Replay all 3<" in page
    assert "Select none" in selected


def test_a_delivery_leads_to_the_previous_and_the_next_of_its_list_and_back(site):
    made = site()
    for event_type in ("PingTest", "InvoiceApproved", "PingTest", "PingTest"):
        made.deliver(b"{}" if event_type == "PingTest" else APPROVED, event_type)

    page = made.get("deliveries/3?type=PingTest&before=9").text
    steps = re.findall(r'<a href="([^"]*)"', page.partition('aria-label="List"')[2].partition("</nav>")[0])

    assert [html.unescape(each) for each in steps] == [
        "/billhook/deliveries?before=9&type=PingTest",
        "/billhook/deliveries/4?type=PingTest",
        "/billhook/deliveries/1?type=PingTest",
    ]
    assert 'rel="prev"' not in made.get("deliveries/4?type=PingTest").text
    assert 'rel="next"' not in made.get("deliveries/1?type=PingTest").text
    assert "/billhook/deliveries/3?type=PingTest" in made.get("deliveries?type=PingTest").text


# --- one delivery ---------------------------------------------------------------------------------


def test_a_body_is_read_with_meanings_and_marks_what_no_model_lists(site):
    made = site()
    body = json.loads(sample(ContractCreated).to_json())
    body["novelty"], body["customer"]["tier"] = {"a": [1.50, {"deep": True}]}, "gold"
    body[""] = 2
    number = made.deliver(json.dumps(body).replace("1.5,", "1.50,").encode(), "ContractCreated")

    rows = re.findall(
        r"<tr( class=\"unlisted\")?>\s*<td data-label=\"field\">(.*?)</tr>",
        made.get(f"deliveries/{number}").text,
        re.DOTALL,
    )
    found = {
        " ".join(re.sub(r"<[^>]+>", " ", text.replace("<wbr>", "")).split()): bool(marked)
        for marked, text in rows
    }

    assert found["contractId con_2001 Id of the contract."] is False
    assert found["customer.integrationEntities[0].syncStatus Synced Synchronization status."] is False
    assert found["novelty.a[0] 1.50 field not listed"] is True
    assert found["novelty.a[1].deep true field not listed"] is True
    assert found["2 field not listed"] is True
    assert found["customer.tier gold field not listed"] is True


def test_the_text_of_a_body_keeps_every_digit_and_the_file_every_byte(site):
    made = site()
    body = b'{"date":"2026-01-15T09:30:00Z",  "invoiceId":"inv_1","amount":12.50,"many":[],"big":1e2}'
    number = made.deliver(body)

    text = made.text(f"deliveries/{number}")
    file = made.get(f"deliveries/{number}/body")

    assert re.search(
        r'"amount"\s*:\s+12\.50\s*,\s*\n\s+"many"\s*:\s+\[\s*\]\s*,\s*\n\s+"big"\s*:\s+1e2', text
    )
    assert file.data == body
    assert file.content_type == "application/octet-stream"
    assert file.headers["Content-Disposition"] == f'attachment; filename="delivery-{number}.bin"'
    assert file.headers["X-Content-Type-Options"] == "nosniff"


# --- failures, handlers, health, actions ----------------------------------------------------------


def test_what_can_be_done_about_an_issue_is_what_it_allows(site, where):
    made = site()
    made.broken[:] = [KeyError("a")]
    made.deliver()
    made.inbox.record_worker(WorkerRecord("gone:1", "worker", 2, NOON), NOON)
    missing, bug = sorted(made.issues(), key=lambda one: one.deliveries)

    pages = [made.get(f"failures/{one.id}").text for one in (missing, bug)]
    offered = [re.findall(r'(act \w+)"><summary>(\w+)', page) for page in pages]
    tones = [re.findall(r'<h1>.*?state (\w+)"', page) for page in pages]

    assert offered[0] == [("act primary", "Acknowledge"), ("act plain", "Resolve"), ("act plain", "Snooze")]
    assert [name for _, name in offered[1]] == ["Acknowledge", "Replay", "Resolve", "Pause", "Snooze"]
    change(where, "UPDATE run SET state = 'dead' WHERE attempts > 0 AND state = 'due'")
    dead = re.findall(r'(act \w+)"><summary>(\w+)', made.get(f"failures/{bug.id}").text)
    assert dead[0] == ("act primary", "Replay")
    assert [name for _, name in dead] == ["Replay", "Acknowledge", "Resolve", "Pause", "Snooze"]
    # Red is what holds of the highest severity.
    assert tones == [["bad"], ["warn"]]
    assert 'class="banner bad"' in made.get("failures").text


def test_an_issue_shows_the_values_that_its_events_have_and_others_do_not(site):
    made = site()

    def deliver(number, currency):
        body = json.dumps(
            {"date": "2026-01-15T09:30:00Z", "invoiceId": f"inv_{number}", "currency": currency}
        )
        made.deliver(body.encode())

    for number in range(3):
        deliver(number, "EUR")
    made.broken[:] = [KeyError("USD")]
    for number in range(3, 5):
        deliver(number, "<b>USD</b>\x1b")
    (issue,) = made.issues()

    text, page = made.text(f"failures/{issue.id}"), made.get(f"failures/{issue.id}").text

    assert r"currency <b>USD</b>\x1b 2 of 2 0 of 3" in " ".join(text.split())
    assert "<b>USD" not in page
    made.broken.clear()
    assert "in common" not in made.text("failures")


def test_a_resolved_issue_is_folded_and_hostile_texts_are_escaped(site):
    made = site()
    made.broken[:] = [RuntimeError("<script>alert()</script>")]
    made.deliver()
    (issue,) = made.issues()
    made.act(f"failures/{issue.id}/resolve", why="<b>mended</b>")

    page = made.get("failures").text

    assert "No issue is open." in page
    assert "1 resolved" in page
    assert "&lt;script&gt;" in page
    assert "&lt;b&gt;mended" in page
    assert "<script>alert" not in page
    assert "<b>mended" not in page


def test_a_handler_has_a_page_of_what_waits_its_durations_issues_and_options(site):
    made = site(clock=FrozenClock(NOON), BILLHOOK_RETRY_SCHEDULE_SECONDS=[10, 60])
    made.deliver(at=NOON)
    made.broken.append(KeyError("no ledger"))
    made.deliver(at=NOON, message_id="two")
    update_issues(made.inbox, NOON)

    response = made.get("handler?name=shop.book")
    text = " ".join(made.text("handler?name=shop.book").split())

    assert (
        "1 not finished 0 running 0 dead 100 % success in 24 h 1 h: 100 %, 7 d: 100 % "
        "0.2 handled a minute in the last five minutes "
        "retried at 12:00 all handled" in text
    )
    assert "Attempts of handlers: succeeded 1, failed 1, dead 0" in response.text
    assert re.search(
        r"Duration: p95 [\d.]+ ms, p50 [\d.]+ ms; the highest bar is [\d.]+ ms, at 01-15 12:00", response.text
    )
    assert re.search(r"KeyError: … .* open, live 1 Failed attempts by hour: (?:0, )+1 just now", text)
    assert text.endswith(
        "event types InvoiceApproved, PaymentFailed time-out 30 s retries after 10 s, 1 min "
        "limits none sources all"
    )
    assert "ordered by invoice_id" in " ".join(made.text("handler?name=shop.mail&range=30d").split())
    assert made.get("handler?name=shop.other").status_code == 404


def test_the_chart_of_durations_says_where_they_are_estimated(site, monkeypatch):
    made = site()
    made.deliver()

    exact = made.text("handler?name=shop.book")
    monkeypatch.setattr(overview, "FEW_CALLS", 0)
    estimated = made.text("handler?name=shop.book")

    assert "half (p50) and 95 % (p95) of the attempts of a minute (UTC) took no longer" in exact
    steps = "; estimated from numbers by steps: 100 ms, 200 ms, 500 ms, 1 s and so on"
    assert (steps in exact, steps in estimated) == (False, True)


def test_a_handler_that_is_not_loaded_is_known_by_its_runs(site):
    made = site()
    made.inbox.pause_handler("shop.old", None, datetime.now(UTC))

    assert "shop.old not loaded here" in " ".join(made.text("handlers").split())
    page = made.text("handler?name=shop.old")
    assert ("its options are not known here" in page, "0 ms" in page) == (True, False)  # without an attempt
    assert made.act("handlers/resume", handler="shop.old") == "shop.old is resumed."
    assert "shop.old" not in made.text("handlers")


def test_health_lists_what_billhook_has_subscribed(site):
    made = site()
    assert "Subscribed by billhook" not in made.text("health")
    sent = {"event_type": "CommitmentUsageCrossed", "threshold": 80}
    terms = terms_of("https://api.example", "https://ann:secret@shop.example/<b>", sent)
    remember(made.inbox, "ann", terms, datetime.now(UTC))

    text = " ".join(made.text("health").split())

    shown = text.partition("Subscribed by billhook")[2]
    assert "own memory: the service can neither list nor remove subscriptions" in shown
    assert "CommitmentUsageCrossed 80 https://shop.example/<b> ann just now" in shown
    assert "flask --app shop billhook subscriptions" in shown
    assert "secret@" not in made.get("health").text


def test_health_and_the_overview_have_one_sentence_and_one_colour(site):
    made = site(clock=FrozenClock(NOON), BILLHOOK_ENGINE="worker")
    made.deliver(b"{broken", at=NOON)

    banners = [
        re.search(r'class="banner (\w+)">(.*?)</p>', made.get(page).text, re.DOTALL)
        for page in ("", "health")
    ]

    colours = [one[1] for one in banners]
    words = [" ".join(re.sub("<[^>]+>", "", one[2]).split()) for one in banners]
    assert colours == ["bad", "bad"]
    assert words[0].startswith("Needs attention: no worker is running")
    assert words[1].startswith(words[0])


def test_health_shows_what_doctor_finds(site):
    made = site()
    made.deliver(b'{"novelty": 1}', "PingTest")
    made.deliver(b'{"novelty": "<b>secret"}', "TicketOpened")
    made.deliver(event_type="")

    text = " ".join(made.text("health").split())

    for found in ("start one: flask --app shop billhook worker", "class TicketOpened(Event):"):
        assert found in text
    code = "<code><bdi>flask --app shop billhook deliveries replay ID --as TYPE</bdi></code>"
    assert code in made.get("health").text
    examined = text.partition("Examined, and well")[2]
    for tick in ("sources default: standard-webhooks, 1 secret", "refusals 0 requests refused in 24 hours"):
        assert f"✓ {tick}" in examined
    size = r"[\d.]+ MiB, [\d,]+ MiB are free, SQLite 3\.[\d.]+ \((py)?sqlite3\)"
    assert re.search(rf"✓ schema and size schema 00\d\d, {size}", examined)
    assert "✓ worker" not in examined
    made.inbox.record_worker(WorkerRecord("worker-1", "worker", 2, datetime.now(UTC)), datetime.now(UTC))
    assert "✓ worker 1 worker, seen just now" in " ".join(made.text("health").split())


# --- harm -----------------------------------------------------------------------------------------


@pytest.fixture
def harmed(site):
    """A site with a delivery of everything that a sender or a handler could put into a page."""
    made = site(BILLHOOK_MAX_BODY_BYTES=3_000_000)
    body = json.dumps(
        {
            "date": "2026-01-15T09:30:00Z",
            "invoiceId": HOSTILE,
            HOSTILE: HOSTILE,
            "long": "x" * 1_000_000,
            "invisible": "\u200b" * 10_000,
        },
        ensure_ascii=False,
    ).encode()
    made.broken.append(RuntimeError(HOSTILE + "y" * 1_000_000))
    headers = {
        f"X-Custom-{number}": HOSTILE.replace("\x1b", "").encode().decode("latin-1") for number in range(200)
    }
    made.deliver(body, headers=headers)
    made.inbox.pause_handler("shop.mail", HOSTILE, datetime.now(UTC))
    made.post("deliveries/1/discard", reason=HOSTILE)
    made.broken[:] = [RuntimeError(HOSTILE)]
    made.deliver(body, "Ev.il-Type")
    made.deliver(body)
    return made


def test_what_was_sent_to_do_harm_is_text(harmed):
    more = ("deliveries/2", "deliveries/3", f"deliveries?error={HOSTILE}")
    for path in (*PAGES[1:3], *more, *PAGES[4:]):
        response = harmed.get(path)

        assert response.status_code == 200, path
        own = r'<script src="/billhook/assets/live\.js\?v=\w+" defer></script>'
        assert "<script" not in re.sub(own, "", response.text)
        assert "<svg/" not in response.text
        assert not re.search(r"[\u202a-\u202e\u2066-\u2069\u200b\x1b]", response.text)
        assert not re.search(r"<[^>]*\s(?:style|on\w+)=", response.text)
        assert not re.search(r'(?:href|src|action)="(?!/billhook/|#)', response.text)
        assert len(response.text) < 400_000


def test_no_page_shows_a_secret_or_a_signature(site):
    made = site()
    made.broken.append(KeyError("no ledger"))
    canaries = ["X-Forwarded-Signature", "X-Hub-Signature-256", "X-My-Sig", "X-Api-Key"]
    made.deliver(headers=dict.fromkeys(canaries, "canary-1234567890"))
    signature = re.search(r"v1,[A-Za-z0-9+/=]+", str(details(made.inbox, [1])[0].headers))[0]

    pages = [
        made.get(path).text
        for path in ("deliveries", "deliveries/1", "failures", "handlers", "actions", "health")
    ]

    assert all(
        hidden not in page
        for page in pages
        for hidden in (SECRET, SECRET[6:], signature, signature[3:], "canary-")
    )
    assert "Webhook-Signature" in pages[1]
    assert "characters)" in pages[1]
    assert "Webhook-Id" in pages[1]


# --- bodies that are made to outgrow their page ----------------------------------------------------


@pytest.mark.parametrize("event_type", ["InvoiceApproved", "Unheard"])
def test_no_body_makes_a_page_that_is_many_times_its_size(site, event_type):
    made = site()
    for body, left_out in (
        (b'{"%s": [%s]}' % (b"k" * 100_000, b",".join([b"0"] * 2_000)), 1_700),  # a long name of many values
        (b'{"%s": 1}' % (b"." * 200_000), 0),  # a name of dots alone
        (b'{"a": %s%s%s}' % (b"[" * 200, b",".join([b"0"] * 15_000), b"]" * 200), 0),  # deep lists
    ):
        response = made.get(f"deliveries/{made.deliver(body, event_type)}")

        assert response.status_code == 200
        assert len(response.data) < 1_000_000
        assert (f"{left_out:,} more fields are in the text below" in response.text) == bool(left_out)


# --- the commands -----------------------------------------------------------------------------------

HOSTILE_TEXTS = [
    "$(touch /tmp/x)`id`; 'rm' \"-rf\" !! \\",
    "\u202etxt.exe\x1b[31m",
    "it's a\tb\nc \\n \U000e0041",
    "--yes",
    "-x",
]


def test_a_shell_reads_from_the_command_exactly_what_was_filtered_by(site):
    made = site()
    for text in HOSTILE_TEXTS:
        page = made.get("deliveries", query_string={"contains": text, "error": text}).text
        shown = re.search(r'<code class="command">(.*?)</code>', page, re.DOTALL)
        assert shown is not None
        command = html.unescape(shown[1]).removeprefix("flask --app shop billhook deliveries list ")

        words = subprocess.run(
            ["bash", "-c", f"printf '%s\\0' {command}"],
            capture_output=True, check=True, text=True, env={"LC_ALL": "C.UTF-8"},
        ).stdout.split("\0")  # fmt: skip

        assert words[:-1] == ["--error", text.strip(), "--contains", text.strip()]


def test_a_replay_shows_a_command_only_where_one_does_the_same(site):
    made = site()
    made.deliver()

    for fields, told in (
        ({"state": "dead"}, "As a command"),
        ({"conflicts": "1"}, "As a command"),
        ({"state": "dead", "handler": "shop.book"}, "What succeeded is handled again by this command alone"),
        ({"twins": "1"}, "no command that does the same"),
        ({}, "no command that does the same"),
    ):
        page = made.post("deliveries/replay", scope="all", **fields).text
        found = re.findall("As a command|What succeeded .* alone|no command that does the same", page)
        assert found == [told]
        assert ("billhook deliveries replay" in page) == ("no command" not in told)
        assert ("--handler shop.book --dry-run" in page) == ("What succeeded" in told)


def test_workers_have_a_page_with_what_each_runs(site):
    made = site(BILLHOOK_ENGINE="worker", clock=FrozenClock(NOON))
    empty = made.text("workers")
    for owner, seconds in (("lost", 600), ("runs", 5)):
        started = NOON - timedelta(seconds=seconds)
        record = WorkerRecord(owner, "worker", 2, started, host=f"<b>{owner}", pid=7, threads=4)
        made.inbox.record_worker(record, started)
    delivery_id = made.inbox.put(incoming("k")).delivery_id
    with made.inbox.transaction("runs") as transaction:
        transaction.plan([RunPlan(delivery_id, ("shop.book",))], NOON)
        transaction.claim(1, NOON, NOON + timedelta(seconds=30))

    text = " ".join(made.text("workers").split())

    assert "No worker was seen in the last minute." in empty
    assert "<b>runs worker, pid 7 running 5 s 2 1 of 4 shop.book of 1 just now" in text
    assert "<b>lost worker, pid 7 lost 10 min ago" in text.partition("Ended in the last day")[2]
    assert "<b>" not in made.get("workers").text


def test_each_page_lights_the_tab_that_leads_to_it(site):
    made = site()
    made.broken.append(KeyError("no ledger"))
    made.deliver()
    (issue,) = made.issues()

    for path, tab, current in (
        ("", "Overview", "page"),
        ("deliveries/1", "Deliveries", "true"),
        (f"failures/{issue.id}", "Failures", "true"),
        ("handler?name=shop.book", "Handlers", "true"),
    ):
        nav = made.get(path).text.partition('aria-label="Pages"')[2].partition("</nav>")[0]
        assert re.findall(r'aria-current="(\w+)">(\w+)', nav) == [(current, tab)]


@pytest.mark.parametrize("error", [KeyError("no ledger"), Retry("the ledger is closed until Monday")])
def test_the_last_attempt_of_a_dead_run_failed_whatever_its_handler_asked_for(site, error):
    made = site(BILLHOOK_RETRY_SCHEDULE_SECONDS=[])
    made.broken.append(error)
    made.deliver()

    page = made.get("deliveries/1").text

    assert re.search(r'<circle class="strong"[^>]*><title>attempt 1 failed at [^<]*: dead<', page)
    assert '<span class="dot strong"></span>dead' in page


def test_an_attempt_that_its_handler_put_off_is_no_failure_on_the_page_of_a_delivery(site):
    made = site()
    made.broken.append(Retry("the ledger is closed until Monday"))
    made.deliver()

    page = made.get("deliveries/1").text

    assert re.search(r'<circle class="quiet"[^>]*><title>put off by its handler at ', page)
    assert '<span class="dot"></span>put off' in page
    assert "attempt 1 failed" not in page


def test_a_handler_that_no_process_has_is_not_active(site):
    made = site()
    now = datetime.now(UTC)
    before, after = HandlerList({"PingTest": {"shop.mail": ()}}, {}), HandlerList({"PingTest": {}}, {})
    for seconds, owner, has in ((600, "old", before), (0, "new", after)):
        seen_at = now - timedelta(seconds=seconds)
        made.inbox.record_worker(WorkerRecord(owner, "worker", 2, seen_at), seen_at, has, read_at=seen_at)
    planned(made.inbox, key="missed", event_type="PingTest", seconds=(now - NOON).total_seconds())

    text = "no process has shop.mail any more, and 1 delivery of PingTest got no handler"
    assert f"not called {text}" in " ".join(made.text("handlers").split())
    assert " ".join(made.text("handler?name=shop.book").split()).count("active") == 1
    command = made.app.test_cli_runner().invoke(args=["billhook", "handlers"])
    assert f"{text}\n" in command.stderr
    issue = next(one for one in made.issues() if one.subject == "shop.mail")
    facts = " ".join(made.text(f"failures/{issue.id}").split())
    assert "handler shop.mail" in facts
    assert "event type shop.mail" not in facts
    hints = made.app.test_cli_runner().invoke(args=["billhook", "failures", "show", issue.id]).stdout
    assert "billhook deliveries replay --handler shop.mail --without-handler shop.mail\n" in hints


def test_where_a_call_hangs_no_page_says_that_none_was_handled(site):
    made = site()
    seconds = (datetime.now(UTC) - NOON).total_seconds()
    planned(made.inbox, "shop.book", key="hangs", seconds=seconds - 1_500)
    claim(made.inbox, 1, seconds - 1_500)
    handled(made.inbox, "well", seconds - 60, handler="shop.book")

    text = " ".join(made.text("handler?name=shop.book").split())

    assert "not known all handled a call of it has not returned" in text
    assert "handled a minute in the last five minutes" in text


def test_a_name_is_broken_behind_its_dots_and_a_list_of_one_handler_does_not_repeat_it(site):
    made = site()
    made.broken.append(KeyError("no ledger"))
    made.deliver()
    made.issues()

    assert "<bdi>shop.</bdi><wbr><bdi>book</bdi>" in made.get("handlers").text
    assert "handler or type" in made.text("failures")
    assert "handler or type" not in made.text("handler?name=shop.book")


def test_columns_that_have_nothing_are_left_out_of_the_list(site):
    made = site()
    made.deliver(b"{}", "PingTest")
    empty = made.text("deliveries")
    made.deliver(b"{broken", "PingTest")

    assert ("last error" in empty, " about " in empty) == (False, False)
    assert "last error" in made.text("deliveries")
