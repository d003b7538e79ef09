"""Asking for webhooks, seeing who did, and ending it."""

from __future__ import annotations

from support.receivers import deliveries, flush, later, receiving, subscribe, trigger
from support.sandbox import INVALID, NOT_FOUND, Running, running

URL = "https://shop.example/webhooks/billing"


def subscriptions(sandbox: Running) -> list[dict[str, object]]:
    return list(sandbox.ok("GET", "/_sandbox/subscriptions?limit=100")["subscriptions"])


def test_webhooks_url_type_and_thresholds_together_are_a_subscription(sandbox: Running) -> None:
    first = subscribe(sandbox, "CommitmentUsageCrossed", URL, threshold=80.125, recurringThreshold=5)
    others = [
        subscribe(sandbox, "CommitmentUsageCrossed", URL, threshold=80),
        subscribe(sandbox, "CommitmentUsageCrossed", URL, recurringThreshold=5),
        subscribe(sandbox, "CommitmentUsageCrossed", URL),
        subscribe(sandbox, "CurrencyCommitmentUsageCrossed", URL, threshold=80, recurringThreshold=5),
        subscribe(sandbox, "CommitmentUsageCrossed", f"{URL}/2", threshold=80, recurringThreshold=5),
    ]
    again = [
        subscribe(sandbox, "CommitmentUsageCrossed", URL, threshold=80.1250, recurringThreshold=5.0),
        subscribe(sandbox, "CommitmentUsageCrossed", URL),
    ]

    listed = subscriptions(sandbox)

    assert again == [first, others[2]]
    assert [one["id"] for one in listed] == [first, *others]
    assert [(one.get("threshold"), one.get("recurringThreshold")) for one in listed[:4]] == [
        (80.125, 5),
        (80, None),
        (None, 5),
        (None, None),
    ]


UNFIT_URLS = {
    "ftp://shop.example/": "must begin with http",
    "shop.example/hook": "must begin with http",
    "https:///hook": "must name a host",
    "https://shop.example:0/": "a port of 1 to 65535",
    "https://shop.example:70000/": "cannot be read",
    "https://[::1/": "cannot be read",
    "https://me:hidden@shop.example/": "user name or password",
    "https://shop.example/#part": "fragment",
    "https://shop.example/a b": "printable ASCII",
    "https://shop.example/\\@127.0.0.1": "printable ASCII",
    "https://shop.example/\r\nX: y": "printable ASCII",
    "https://schön.example/": "printable ASCII",
    f"https://shop.example/{'x' * 2048}": "at most 2048",
    "": "is empty",
}


def test_webhooks_a_url_that_cannot_be_called_is_refused(sandbox: Running) -> None:
    answers = {
        url: sandbox.call("POST", "/webhook", {"callbackUrl": url, "eventType": "PingTest"})
        for url in UNFIT_URLS
    }

    assert subscriptions(sandbox) == []
    assert {answer.error() for answer in answers.values()} == {INVALID}
    assert {answer.json["param"] for answer in answers.values()} == {"callbackUrl"}
    assert [url for url, said in UNFIT_URLS.items() if said not in answers[url].json["message"]] == []
    assert [url for url, answer in answers.items() if b"hidden" in answer.body] == []


PRIVATE_HOSTS = (
    "127.0.0.1", "169.254.169.254", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::1]",
    "[::ffff:127.0.0.1]", "localhost", "LOCALHOST.", "shop.localhost",
)  # fmt: skip
PUBLIC_HOSTS = ("8.8.8.8", "[2001:4860:4860::8888]", "shop.example", "[::ffff:8.8.8.8]")


def test_webhooks_an_address_that_is_not_on_the_open_internet_is_refused() -> None:
    with running(allow_private=False) as sandbox:
        refused, taken = (
            {
                host: sandbox.call(
                    "POST", "/webhook", {"callbackUrl": f"http://{host}/hook", "eventType": "InvoiceApproved"}
                )
                for host in hosts
            }
            for hosts in (PRIVATE_HOSTS, PUBLIC_HOSTS)
        )

        assert len(subscriptions(sandbox)) == len(PUBLIC_HOSTS)
    assert {host: answer.status for host, answer in refused.items()} == dict.fromkeys(PRIVATE_HOSTS, 400)
    for answer in refused.values():
        assert "open internet" in answer.json["message"]
        assert "allow_private (--allow-private)" in answer.json["message"]
    assert {host: answer.status for host, answer in taken.items()} == dict.fromkeys(PUBLIC_HOSTS, 200)


def test_an_ended_subscription_cancels_its_due_deliveries() -> None:
    with receiving(500) as receiver, running() as sandbox:
        asked = subscribe(sandbox, "InvoiceApproved", receiver.url)
        trigger(sandbox, "InvoiceApproved")
        assert flush(sandbox)["pending"] == 1

        gone = sandbox.ok("DELETE", f"/_sandbox/subscriptions/{asked}")

        trigger(sandbox, "InvoiceApproved")
        later(sandbox, 100_000)
        (delivery,) = deliveries(sandbox)
        resent = sandbox.call("POST", f"/_sandbox/deliveries/{delivery['id']}/resend")
        again = sandbox.call("DELETE", f"/_sandbox/subscriptions/{asked}")
    assert gone["callbackUrl"] == receiver.url
    assert (delivery["state"], len(receiver.got)) == ("cancelled", 1)
    assert resent.error() == (400, "invalid_request_error", "subscription_ended")
    assert again.error() == NOT_FOUND


def test_a_trigger_takes_fields_and_names_those_that_are_wrong(sandbox: Running) -> None:
    raised = sandbox.ok("POST", "/_sandbox/trigger/Overage", {"overageAmount": 12.5, "note": "extra"})
    wrong = sandbox.call("POST", "/_sandbox/trigger/Overage", {"overageAmount": "x", "date": 7})
    unknown = sandbox.call("POST", "/_sandbox/trigger/Nothing", {})

    listed = sandbox.ok("GET", "/_sandbox/raised?eventType=Overage")["raised"]

    assert [one["id"] for one in listed] == [raised["raisedId"]]
    assert (listed[0]["body"]["overageAmount"], listed[0]["body"]["note"]) == (12.5, "extra")
    assert wrong.status == 400
    assert {one["param"] for one in wrong.json["params"]} == {"overageAmount", "date"}
    assert unknown.status == 404
