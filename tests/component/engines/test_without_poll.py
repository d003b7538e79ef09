"""The thread engine in a process whose select module has neither poll nor epoll, as eventlet leaves it."""

from __future__ import annotations

import os
import sys

from support.pages import ROOT
from support.processes import run_command

PROGRAM = """
import select, sys, time
del select.poll, select.epoll
from flask import Flask
from billhook import Billhook, Handlers
from billhook.events import PingTest
from support.apps import deliver
from support.signing import SECRET

handlers = Handlers()

@handlers.on(PingTest, retry=[0.05, 0.05])
def fail(event, delivery):
    print("attempt", delivery.attempt, flush=True)
    raise ValueError("it fails")

app = Flask(__name__)
app.config.update(BILLHOOK_SECRETS=[SECRET], BILLHOOK_INBOX_URL=sys.argv[1], BILLHOOK_RETRY_JITTER=0)
Billhook(app, handlers=[handlers])
print(deliver(app).status_code, flush=True)
state, end = app.extensions["billhook"], time.monotonic() + 20
while time.monotonic() < end:
    with state.inbox.database.read() as connection:
        if connection.exec_driver_sql("SELECT 1 FROM delivery WHERE state = 'dead'").first():
            print("dead")
            break
    time.sleep(0.05)
state.close()
"""


def test_a_handler_that_fails_gets_all_its_attempts_from_one_request(inbox_url):
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}

    ran = run_command([sys.executable, "-c", PROGRAM, inbox_url], env=environ)

    assert "crashed" not in ran.stderr
    assert sorted(ran.stdout.split("\n")) == ["", "200", "attempt 1", "attempt 2", "attempt 3", "dead"]
