"""`billhook worker --processes`: children that are killed, stopped and replaced."""

from __future__ import annotations

import json

import pytest

from support.processes import until
from support.worker_group import signalled

pytestmark = pytest.mark.slow

SHOP = """
from flask import Flask
from billhook import Billhook
from worst import handlers

app = Flask(__name__, instance_path="{folder}")
app.config.from_prefixed_env()
Billhook(handlers=[handlers]).init_app(app)
"""


def test_a_wrong_configuration_is_refused_before_any_child_starts(group):
    for arguments in (("no_such.py",), ("worst.py", "--require-all")):
        refused = group.start("worker", *arguments, "--processes", "2")
        code = refused.wait(30)
        assert code == (1 if "--require-all" in arguments else 2)

    assert "there is no handlers file" in group.log()
    assert "no handler for AnonymousCustomer, " in group.log()
    assert group.log().count("\n") == 2


def test_the_worker_of_a_users_own_app_logs_json_if_it_says_so(group):
    (group.folder / "shop.py").write_text(SHOP.format(folder=group.folder))
    group.environ["FLASK_BILLHOOK_LOG_FORMAT"] = "json"

    worker = group.start("worker", "--drain", program=("flask", "--app", "shop", "billhook"))

    assert worker.wait(60) == 0
    records = [json.loads(line) for line in group.log().splitlines()]
    assert [record["message"] for record in records] == ["worker started with 8 threads", "worker stopped"]


def test_a_users_own_app_has_as_many_processes(group):
    (group.folder / "shop.py").write_text(SHOP.format(folder=group.folder))
    program = ("flask", "--app", "shop", "billhook")
    worker = group.start("worker", "--processes", "2", program=program)
    until(lambda: group.log().count("worker started with") == 2, 30)

    group.put("one")
    until(lambda: group.states() == {"one": "done"}, 15)
    signalled(worker, 20)

    assert worker.returncode == 0
    assert "Traceback" not in group.log()
