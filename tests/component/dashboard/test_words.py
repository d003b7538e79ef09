"""No page with data, no message and no list of a command needs a word of billhook's inside."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import pytest

from billhook.clock import FrozenClock, SystemClock
from billhook.inbox import WorkerRecord
from billhook.inbox.running.handler_lists import HandlerList
from billhook.notify import Writer
from support.inner_words import inner_words
from support.rich_inbox import HOUR, RichSite, rich_site
from support.runs import at

SHOWN_ATTRIBUTES = re.compile(r'\s(?:title|aria-label|placeholder|alt)="([^"]*)"')
NOT_READ = re.compile(r"<(script|style)\b.*?</\1>", re.DOTALL)
COMMANDS = (
    *("status --details", "failures list", "workers list", "handlers list", "doctor", "actions"),
    *("deliveries list", "deliveries list --twins", "subscriptions"),
)


@pytest.fixture
def rich(tmp_path, monkeypatch) -> RichSite:
    """The rich site; commands go by its clock too."""
    clock = FrozenClock(at(-21 * HOUR))
    monkeypatch.setattr(SystemClock, "now", staticmethod(clock.now))
    site = rich_site(tmp_path, clock)
    # And a process of another deployment, which has other handlers.
    other = WorkerRecord("other", "worker", 1, clock.now())
    site.inbox.record_worker(other, clock.now(), HandlerList({"PingTest": {"shop.audit": ()}, "": {}}, {}))
    return site


def seen(page: str) -> str:
    """What a person sees of a page: its texts, and those of elements that are pointed at or read out."""
    page = NOT_READ.sub(" ", page)
    inline = re.sub(r"</?(?:span|bdi|wbr)[^>]*>", "", page)
    parts = [re.sub(r"<[^>]+>", " ", inline), *SHOWN_ATTRIBUTES.findall(page)]
    return html.unescape("\n".join(parts))


def every_page(site: RichSite) -> dict[str, str]:
    """All pages to which links lead from the first one, by their addresses."""
    pages: dict[str, str] = {}
    ahead = ["/billhook/"]
    while ahead:
        address = ahead.pop()
        # One page of each delivery: those of a list have the list's filters in their addresses.
        address = re.sub(r"(/deliveries/\d+)\?.*", r"\1", address)
        if address in pages or "/assets/" in address or address.endswith("/body"):
            continue
        response = site.client.get(address)
        assert response.status_code == 200, address
        pages[address] = response.text
        ahead += map(html.unescape, re.findall(r'href="(/billhook/[^"#]*)', response.text))
    return pages


def messages(site: RichSite) -> Iterator[tuple[str, str]]:
    """All that is sent of the issues: one by one, together, and when all is well."""
    writer, issues = Writer("https://shop.example.com/billhook", "production"), site.found()
    each = [message for one in issues for message in writer.about([one], 0, None)]
    together = writer.about(issues, 0, site.clock.now())
    for message in (*each, *together, writer.all_well()):
        yield message.title, f"{message.title}\n{message.body}"


def outputs(site: RichSite) -> Iterator[tuple[str, str]]:
    """What commands say in words of the same inbox."""
    run = site.app.test_cli_runner().invoke
    shown = [f"deliveries show {one}" for one in site.ids("")[:40]]
    for command in (*COMMANDS, *shown, *(f"failures show {one.id}" for one in site.found())):
        result = run(args=["billhook", *command.split()], env={"COLUMNS": "300"})
        yield command, result.output


def test_who_reads_pages_messages_and_outputs_with_data_needs_no_word_of_the_inside(rich):
    pages = every_page(rich)
    asked = [("asked before an action", text) for text in rich.asked]
    told = [*messages(rich), *outputs(rich), *(("notice", one) for one in rich.said)]

    rules = {
        rule.endpoint
        for rule in rich.app.url_map.iter_rules()
        if rule.rule.startswith("/billhook") and "GET" in (rule.methods or ())
    }
    adapter = rich.app.url_map.bind("localhost")
    looked_at = {adapter.match(address.partition("?")[0])[0] for address in pages}
    assert {one.rpartition(".")[2] for one in rules - looked_at} == {"asset", "body"}
    assert inner_words([(place, seen(text)) for place, text in [*pages.items(), *asked]]) == []
    assert inner_words(told) == []


STATES = ("dead", "retrying", "quarantined", "paused", "running", "waiting", "done", "erased")


def test_the_rich_inbox_has_what_the_words_are_looked_for_in(rich):
    """Else the test above would look at empty pages."""
    lacking = [state for state in STATES if not rich.ids(f"state={state}")]
    issues = {one.state.value for one in rich.found()}
    workers = set(re.findall(r'class="state \w+">(\w+)<', rich.get("workers").text))

    assert lacking == []
    assert issues >= {"open", "acknowledged", "snoozed"}
    assert workers == {"running", "held", "lost", "stopped"}
    assert len(rich.asked) == 4
    assert rich.ids("twins=1")
    assert rich.ids("conflicts=1")
    assert "have not returned" in rich.text("")
    assert "Subscribed by billhook" in rich.text("health")


def test_what_is_pointed_at_is_seen_and_an_address_is_not():
    page = '<p title="a lease">b<a href="/?twins=1">of it</a></p><style>.plan {}</style>'

    assert inner_words([("page", seen(page))]) == ["page: lease"]
