"""`deliveries forward`: stored deliveries go to another receiver, signed with another secret."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result

from billhook.clock import SystemClock
from billhook.errors import InboxUnavailable
from billhook.inbox import Deliveries
from billhook.inbox.reading.deliveries import NewIds
from billhook.posting import HttpReply
from billhook.signing import StandardWebhooks
from support.inbox_view import change, incoming, open_inbox, place_of, rows
from support.postgres import unavailable
from support.receivers import BillhookReceiver, Receiver, billhook_receiver, receiving
from support.signing import APPROVED

OWN = "whsec_" + "b" * 32


@pytest.fixture
def staging(tmp_path: Path) -> Iterator[BillhookReceiver]:
    """A receiver with another secret than the shop's."""
    (tmp_path / "staging").mkdir()
    own = {"BILLHOOK_INBOX_URL": f"sqlite:///{tmp_path}/staging/own.db"}
    with billhook_receiver(tmp_path / "staging", StandardWebhooks(), [OWN], SystemClock(), **own) as receiver:
        yield receiver


@pytest.fixture
def forward(run, shop, secret_file) -> Callable[..., Result]:
    """Runs `deliveries forward` to an address with the own secret, and without a question."""

    def invoke(url: str, *arguments: str, **options: Any) -> Result:
        where = ("--to", url, "--secret-file", secret_file(OWN))
        result = run("deliveries", "forward", *where, "--yes", *arguments, **options)
        assert OWN not in result.output
        return result

    return invoke


@pytest.fixture
def plain() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def test_deliveries_arrive_as_they_were_stored_signed_with_the_own_secret(forward, staging):
    result = forward(staging.url, "--since", "1h")

    assert result.exit_code == 0, result.output
    bodies = {key: (kind, body) for key, kind, body in staging.stored()}
    assert list(bodies) == ["m1", "m2", "m3", "m4"]
    assert bodies["m3"] == ("PingTest", b'{"\x1b]0;title\x07 \xff')
    assert "4 of 4 deliveries sent" in result.stdout
    assert ["200", '{"status":', '"accepted"}', "4"] in [line.split() for line in result.stdout.splitlines()]


def test_a_second_time_the_receiver_knows_them_unless_they_have_new_ids(forward, staging):
    forward(staging.url, "1", "2")

    again = forward(staging.url, "1", "2", "--json")
    more = forward(staging.url, "1", "2", "3")
    anew = forward(staging.url, "1", "2", "--new-ids", "--json")

    assert [one["answer"] for one in json.loads(again.stdout)["answers"]] == ['{"status": "duplicate"}']
    assert "3 of 3 deliveries sent, 1 accepted, 2 duplicates" in more.stdout
    assert [one["answer"] for one in json.loads(anew.stdout)["answers"]] == ['{"status": "accepted"}']
    assert json.loads(anew.stdout)["statuses"] == {"200": 2}


def test_options_select_what_is_sent_and_actions_list_it(forward, plain, run):
    forward(plain.url, "--type", "InvoiceApproved")
    forward(plain.url, "--contains", "inv_1")
    forward(plain.url, "--state", "quarantined")
    forward(plain.url, "1", "2")
    forward(plain.url, "1", "--dry-run")

    assert [got.id for got in plain.got] == ["m2", "m2", "m3", "m1", "m2"]
    recorded = [
        one["which"] for one in json.loads(run("actions", "--json").stdout) if one["what"] == "forward"
    ]
    assert recorded == ["1-2", "--state quarantined: 3", "--contains …: 2", "--type InvoiceApproved: 2"]


def test_the_answers_are_counted_and_a_refusal_is_exit_code_1(forward):
    with receiving(401, 200, 500) as careful:
        result = forward(careful.url, "--since", "1h", "--json")

    told = json.loads(result.stdout)
    assert result.exit_code == 1
    assert told["statuses"] == {"401": 1, "200": 2, "500": 1}
    assert (told["selected"], told["sent"], told["skipped"]) == (4, 4, 0)


def test_a_receiver_that_is_not_there_ends_it(forward, inbox_url):
    inbox = open_inbox(place_of(inbox_url))
    for number in range(20):
        inbox.put(incoming(f"more{number}"))
    inbox.close()

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/hooks"
        result = forward(url, "--type", "PingTest")

    assert result.exit_code == 1
    assert "10 of 22 deliveries sent" in result.stdout
    assert "10 requests in a row had no answer" in result.stderr


def test_it_sends_nothing_without_a_yes(run, shop, plain, secret_file):
    where = ("--to", plain.url, "--secret-file", secret_file(OWN))

    unconfirmed = run("deliveries", "forward", "1", *where)

    assert (unconfirmed.exit_code, "add --yes to skip the question" in unconfirmed.stderr) == (1, True)
    assert f"Send 1 delivery to 127.0.0.1:{plain.port}?" in unconfirmed.output
    assert plain.got == []


def test_a_pruned_delivery_is_told_of_and_not_sent(forward, plain, inbox_url):
    change(place_of(inbox_url), "UPDATE delivery SET state = 'pruned', body = '' WHERE id = 1")

    result = forward(plain.url, "--since", "1h")

    assert result.exit_code == 1
    assert "1 not sent, past its retention: only the key is left" in result.stdout
    assert len(plain.got) == 3


def test_a_key_that_is_no_id_and_a_delivery_without_a_type_are_sent(forward, plain, inbox_url):
    inbox = open_inbox(place_of(inbox_url))
    inbox.put(incoming("a.b,c", event_type=""))
    inbox.close()

    forward(plain.url, "5")
    forward(plain.url, "5")

    first, second = plain.got
    assert first.id == second.id
    assert len(first.id) == 64
    assert "x-webhook-type" not in first.headers


def test_another_scheme_can_be_named(forward, plain):
    forward(plain.url, "1", "--scheme", "timestamped-hmac", "--rate", "1000")

    (got,) = plain.got
    assert got.headers["x-webhook-signature"].startswith("t=")


def test_what_the_scheme_cannot_sign_is_told_of(forward, plain, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("no such content\x1b")

    monkeypatch.setattr(StandardWebhooks, "sign", refuse)

    result = forward(plain.url, "1")

    assert (result.exit_code, plain.got) == (1, [])
    assert "1 not sent, cannot be signed: no such content\\x1b" in result.stdout


def test_many_different_answers_are_counted_together(forward, plain, inbox_url, monkeypatch):
    from billhook.cli import forward as module

    monkeypatch.setattr(module, "_MOST_ANSWERS", 2)
    with receiving(500, 502, 503) as failing:
        result = forward(failing.url, "--since", "1h", "--json")

    answers = [one["answer"] for one in json.loads(result.stdout)["answers"]]
    assert answers.count("other answers") == 2


# --- as curl ----------------------------------------------------------------------------------------


@pytest.fixture
def curl():
    if shutil.which("curl") is None:
        unavailable("no curl to run what is printed for it")


@pytest.mark.usefixtures("curl")
def test_curl_sends_the_request_that_is_printed_without_the_secret(forward, staging):
    printed = forward(staging.url, "1", "2", "3", "--curl").stdout

    assert staging.stored() == []
    assert OWN not in printed
    for line in printed.splitlines():
        subprocess.run(["sh", "-c", line.replace("curl ", "curl --silent ")], check=True, capture_output=True)
    bodies = {key: (kind, body) for key, kind, body in staging.stored()}
    assert list(bodies) == ["m1", "m2", "m3"]
    assert bodies["m2"] == ("InvoiceApproved", APPROVED)
    assert bodies["m3"] == ("PingTest", b'{"\x1b]0;title\x07 \xff')


def test_curl_is_recorded_and_leaves_out_what_cannot_be_sent(forward, plain, inbox_url, run, monkeypatch):
    change(place_of(inbox_url), "UPDATE delivery SET state = 'erased', body = '' WHERE id = 1")
    real = StandardWebhooks.sign

    def sign(scheme: Any, body: bytes, *arguments: Any, **options: Any) -> Any:
        if body == APPROVED:
            raise ValueError("no such content")
        return real(scheme, body, *arguments, **options)

    monkeypatch.setattr(StandardWebhooks, "sign", sign)

    dry = forward(plain.url, "--since", "1h", "--curl", "--dry-run")
    printed = forward(plain.url, "--since", "1h", "--curl")
    forward(plain.url, "3", "--curl")

    assert (dry.exit_code, dry.stdout) == (0, "4 deliveries would be sent\n")
    assert (printed.exit_code, printed.stdout.count("curl http"), plain.got) == (1, 2, [])
    assert "1 not sent, erased: only the key is left" in printed.stderr
    assert "1 not sent, cannot be signed: no such content" in printed.stderr
    last, first = json.loads(run("actions", "--json").stdout)
    assert first["which"].startswith("--curl --since ")
    assert (first["which"][-5:], first["deliveries"]) == (": 3-4", 2)
    assert (last["what"], last["which"], last["deliveries"]) == ("forward", "--curl 3", 1)


@pytest.mark.usefixtures("curl")
def test_curl_prints_a_command_that_a_shell_can_run_for_a_long_body(forward, plain, inbox_url):
    long = b'{"text": "' + b"'" * 200_000 + b'"}'
    change(place_of(inbox_url), f"UPDATE delivery SET body = x'{long.hex()}' WHERE id = 2")

    printed = forward(plain.url, "2", "--curl").stdout
    subprocess.run(["sh"], input=printed.encode(), check=True, capture_output=True)

    assert [got.body for got in plain.got] == [long]


# --- following ---------------------------------------------------------------------------------------


@pytest.fixture
def pauses(monkeypatch) -> list[float]:
    """The waits of `--follow`, which take no time."""
    module = importlib.import_module("billhook.cli.forward")
    waited: list[float] = []
    clock = SimpleNamespace(sleep=waited.append, monotonic=time.monotonic)
    monkeypatch.setattr(module, "time", clock)
    return waited


@pytest.fixture
def storing(inbox_url, monkeypatch):
    """Stores what a test names while `--follow` follows, and ends it then as Ctrl-C does."""
    real = Deliveries.follow

    def while_following(*deliveries: tuple[str, str]) -> None:
        def follow(self: Deliveries, *arguments: Any, **options: Any) -> Iterator[Any]:
            stream = real(self, *arguments, **options, idle_seconds=0.0)
            inbox = open_inbox(place_of(inbox_url))
            polled = iter([None])
            original = NewIds.poll

            def poll(news: Any) -> list[int]:
                for key, event_type in deliveries if next(polled, "later") is None else ():
                    inbox.put(incoming(key, event_type=event_type))
                return original(news)

            monkeypatch.setattr(NewIds, "poll", poll)
            yield from stream
            inbox.close()
            raise KeyboardInterrupt

        monkeypatch.setattr(Deliveries, "follow", follow)

    return while_following


def test_following_sends_what_is_stored_from_now_on_and_marks_nothing(
    forward, staging, storing, run, inbox_url
):
    before = rows(place_of(inbox_url), "SELECT id, state FROM delivery")
    storing(("n1", "PingTest"), ("n2", "InvoiceApproved"), ("n3", ""))

    result = forward(staging.url, "--follow")

    assert result.exit_code == 0, result.output
    assert [(key, kind) for key, kind, _ in staging.stored()] == [
        ("n1", "PingTest"), ("n2", "InvoiceApproved"), ("n3", ""),
    ]  # fmt: skip
    lines = [re.sub(r"\([^()]*\)$", "()", line) for line in result.stdout.splitlines()]
    accepted = '200 {"status": "accepted"} ()'
    assert lines == [
        f"5  PingTest  {accepted}",
        f"6  InvoiceApproved  {accepted}",
        f"7  (no type)  {accepted}",
    ]
    assert rows(place_of(inbox_url), "SELECT id, state FROM delivery WHERE id < 5") == before
    assert rows(place_of(inbox_url), "SELECT count(*) FROM run WHERE delivery_id > 4") == [(0,)]
    (listed,) = json.loads(run("actions", "--json").stdout)
    assert (listed["what"], listed["which"], listed["deliveries"]) == ("forward", "--follow: 5-7", 3)


def test_following_keeps_to_types_and_sources(forward, plain, storing, run):
    storing(("n1", "PingTest"), ("n2", "InvoiceApproved"), ("n3", "PaymentFailed"))
    chosen = "--type InvoiceApproved --type PaymentFailed --source default --source other"

    result = forward(plain.url, "--follow", *chosen.split(), "--json")

    assert [got.id for got in plain.got] == ["n2", "n3"]
    line = json.loads(result.stdout.splitlines()[0])
    assert (line["id"], line["type"], line["key"]) == (6, "InvoiceApproved", "n2")
    assert line["result"].startswith("200 ")
    (listed,) = json.loads(run("actions", "--json").stdout)
    assert listed["which"] == f"--follow {chosen}: 6-7"


def test_following_forgets_the_deliveries_that_are_recorded(forward, plain, storing, run, monkeypatch):
    follow = importlib.import_module("billhook.cli.forward")
    monkeypatch.setattr(follow, "_RECORDED_AT_ONCE", 2)
    real, added = follow.recording, []

    @contextmanager
    def recording(*arguments: Any) -> Iterator[Any]:
        with real(*arguments) as add:

            def noting(number: int, ids: list[int]) -> None:
                added.append([*ids])
                add(number, ids)
                if len(added) == 1:  # noted, and not stored
                    raise InboxUnavailable("it is away")

            yield noting

    monkeypatch.setattr(follow, "recording", recording)
    storing(*((f"n{number}", "PingTest") for number in range(5)))

    forward(plain.url, "--follow")

    assert added == [[5, 6], [7, 8], [9]]
    (listed,) = json.loads(run("actions", "--json").stdout)
    assert (listed["which"], listed["deliveries"]) == ("--follow: 5-9", 5)


def test_following_waits_for_a_receiver_that_is_away_and_loses_none(forward, storing, pauses, monkeypatch):
    storing(("n1", "PingTest"), ("n2", "PingTest"))
    module, posted = importlib.import_module("billhook.cli.forward"), []
    answers = iter([None, 503, 502, 200, 401])

    def post(_: Any, body: bytes, headers: dict[str, str]) -> HttpReply:
        posted.append(headers["webhook-id"])
        status = next(answers)
        return HttpReply(status, "" if status else "Connection refused", 0.0)

    monkeypatch.setattr(module.HttpPoster, "post", post)

    result = forward("http://127.0.0.1:9/hooks", "--follow")

    assert posted == ["n1"] * 4 + ["n2"]
    assert [line.split()[2] for line in result.stdout.splitlines()] == ["200", "401"]
    assert pauses == [0.25, 0.5, 1.0]
    assert result.stderr.count("; waiting for it") == 1
    assert "127.0.0.1:9 does not take delivery 5 (Connection refused); waiting for it" in result.stderr


def test_following_under_a_new_id_keeps_it_for_every_try(forward, storing, pauses):
    storing(("n1", "PingTest"), ("n2", "PingTest"))

    with receiving(503, 200, 200) as receiver:
        forward(receiver.url, "--follow", "--new-ids")
        forward(receiver.url, "1", "--new-ids")
        forward(receiver.url, "1", "--new-ids")

    first, again, *others = [got.id for got in receiver.got]
    assert first == again
    assert len({first, *others, "n1", "n2", "m1"}) == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_following_ends_at_a_signal_as_at_ctrl_c(forward, plain, storing, run, monkeypatch, number):
    storing(("n1", "PingTest"), ("n2", "PingTest"))
    follow = importlib.import_module("billhook.cli.forward")
    real = follow.HttpPoster.post

    def post(*arguments: Any) -> HttpReply:
        reply = real(*arguments)
        if len(plain.got) == 2:
            signal.raise_signal(number)
        return reply

    monkeypatch.setattr(follow.HttpPoster, "post", post)
    before = signal.signal(number, lambda *_: pytest.fail("the signal had its own effect"))
    try:
        result = forward(plain.url, "--follow")
        assert signal.getsignal(number) is not signal.default_int_handler
    finally:
        signal.signal(number, before)

    assert result.exit_code == 0, result.output
    (listed,) = json.loads(run("actions", "--json").stdout)
    assert (listed["which"], listed["deliveries"]) == ("--follow: 5-6", 2)


def test_following_asks_before_it_sends_to_another_machine(run, shop, secret_file):
    where = ("--to", "https://staging.example/hooks", "--secret-file", secret_file(OWN))

    result = run("deliveries", "forward", "--follow", *where)

    assert "Send each new delivery to staging.example?" in result.output
    assert (result.exit_code, "add --yes to skip the question" in result.stderr) == (1, True)
