"""The caller of any path: what it sends, and what it says of answers that are none."""

from __future__ import annotations

import json
import re

import pytest
from receivers import receiving

from billhook.cli.caller import Caller
from billhook.cli.faults import Fault
from billhook.wire import strict_json


def test_amounts_are_sent_digit_for_digit_and_under_the_path_of_the_address():
    with receiving() as service:
        service.body = b'{"amount": 0.10}'
        caller = Caller(f"http://127.0.0.1:{service.port}/base/", "client", "token", 10)

        answer = caller.call("POST", "/path", strict_json.loads(b'{"amount": 12.50}'))

    assert [(got.path, got.body) for got in service.got] == [("/base/path", b'{"amount":12.50}')]
    assert json.dumps(answer, default=str) == '{"amount": "0.10"}'


def test_an_answer_that_is_not_json_is_told_as_such():
    with receiving() as service:
        service.body = b"<title>a page</title>"
        caller = Caller(f"http://127.0.0.1:{service.port}", "client", "token", 10)

        told = re.escape("POST /page was answered with something else than JSON: <title>a page</title>")
        with pytest.raises(Fault, match=told):
            caller.call("POST", "/page", {})
