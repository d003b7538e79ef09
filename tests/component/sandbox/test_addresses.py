"""Where the sandbox connects to: the address that it checked, and no other."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from typing import Any

import pytest

from billhook.sandbox.webhooks import http_post
from billhook.sandbox.webhooks.http_post import FailureReason, PostResult, is_public
from support.receivers import receiving


class Names:
    """A resolver of our own: each look-up gets the next of the answers, the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, host: str, port: int, **_: Any) -> list[tuple[Any, Any, Any, Any, Any]]:
        self.asked.append(host)
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                socket.IPPROTO_TCP,
                "",
                (address, port, 0, 0) if ":" in address else (address, port),
            )
            for address in found
        ]


def post(url: str, names: Any, *, allow_private: bool = False, seconds: float = 10) -> PostResult:
    return asyncio.run(
        http_post.post(url, {}, b"{}", timeout_seconds=seconds, allow_private=allow_private, lookup=names)
    )


PRIVATE = (
    "127.0.0.1", "127.255.255.254", "10.1.2.3", "172.31.255.255", "192.168.0.1", "169.254.169.254",
    "100.64.0.1", "100.127.255.255", "0.0.0.0", "0.1.2.3", "192.0.0.1", "192.0.2.1", "198.18.0.1",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1", "::127.0.0.1",
    "64:ff9b::a00:1", "64:ff9b:1::1", "2001::1", "2001:db8::1", "2002:a00:1::", "100::1",
    "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
    # What not every Python knows of, and servers of clouds for their own machines.
    "192.0.0.192", "192.0.0.9", "192.88.99.1", "168.63.129.16", "3fff::1", "3fff:fff::1", "5f00::1",
    "2001:4860:4860::5efe:8.8.8.8", "2001:4860:4860::200:5efe:808:808", "::ffff:168.63.129.16",
    "64:ff9b::168.63.129.16", "2002:c058:6301::1", "2001:20::1",
)  # fmt: skip
PUBLIC = (
    "8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2001:4860:4860::8888", "2606:4700::1111",
    "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1", "168.63.129.15", "168.63.129.17", "192.0.1.1",
    "192.88.98.1", "2a00::1", "2001:200::1",
)  # fmt: skip


def test_internet_addresses_are_public_and_private_ones_are_not() -> None:
    found = [address for address in (*PRIVATE, *PUBLIC) if is_public(ipaddress.ip_address(address))]

    assert found == [*PUBLIC]


def test_a_name_that_stands_for_a_private_address_is_not_connected_to() -> None:
    with receiving() as receiver:
        outcome = post(f"http://shop.example:{receiver.port}/", Names(["127.0.0.1"]))

    assert outcome == PostResult(problem=FailureReason.FORBIDDEN_ADDRESS)
    assert receiver.got == []


def test_one_forbidden_address_among_public_ones_is_refused() -> None:
    outcome = post("http://shop.example/", Names(["8.8.8.8", "127.0.0.1"]))

    assert outcome == PostResult(problem=FailureReason.FORBIDDEN_ADDRESS)


def test_control_a_private_address_is_connected_to_if_allowed_and_its_name_is_resolved_once() -> None:
    rebinding = Names(["127.0.0.1"], ["127.0.0.2"])
    with receiving() as receiver:
        outcome = post(f"http://shop.example:{receiver.port}/", rebinding, allow_private=True)

    assert outcome.status == 200  # at the first of the two
    assert receiver.got[0].headers["host"] == f"shop.example:{receiver.port}"
    assert rebinding.asked == ["shop.example"]


def test_an_address_that_does_not_answer_is_followed_by_the_next() -> None:
    with receiving() as receiver:
        names = Names(["127.0.0.3", "127.0.0.1"])
        outcome = post(f"http://shop.example:{receiver.port}/", names, allow_private=True)

    assert outcome.status == 200


def test_a_host_name_that_tls_cannot_encode_is_an_unfit_url() -> None:
    names = Names(["127.0.0.1"])
    hosts = (f"{'x' * 64}.example", ".example", "a..b")

    outcomes = [post(f"https://{host}/", names, allow_private=True) for host in hosts]

    assert outcomes == [PostResult(problem=FailureReason.UNFIT_URL)] * 3
    assert names.asked == []


def test_a_literal_address_is_checked_again_before_sending() -> None:
    with receiving() as receiver:
        outcome = post(receiver.url, socket.getaddrinfo)

    assert outcome == PostResult(problem=FailureReason.UNFIT_URL)
    assert receiver.got == []


def test_a_look_up_that_never_ends_takes_no_longer_than_an_attempt_may() -> None:
    ended = threading.Event()

    def stuck(*_: Any, **__: Any) -> Any:
        ended.wait(60)
        return []

    outcome = post("http://shop.example/", stuck, seconds=0.2)  # and it is still asked
    ended.set()

    assert outcome == PostResult(problem=FailureReason.TIMED_OUT)


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver, receiving() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")

        outcome = post(receiver.url, socket.getaddrinfo, allow_private=True)

    assert outcome.status == 200
    assert (len(receiver.got), proxy.got) == (1, [])
