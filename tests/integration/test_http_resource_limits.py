"""A process at real limits of the system, without a thread or memory to be had: 503, and good again after."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from support.processes import clean_environment, run_command
from support.signing import SECRET

TESTS = Path(__file__).parents[1]

PROGRAM = """
import io, json, resource, socket, sys, threading
from support.signing import signed
from billhook.standalone import create_app

app = create_app()
client = app.test_client()
ours, theirs = socket.socketpair()

def post(body, overrides, headers):
    # The stream of a server, which makes the bytes when it is read.
    stream = io.BytesIO(body)
    overrides = {"wsgi.input": stream, "CONTENT_LENGTH": str(len(body)), **overrides}
    answer = client.post("/webhooks/billing", headers=headers, environ_overrides=overrides)
    return [answer.status_code, "Retry-After" in answer.headers]

def thread_starts():
    try:
        threading.Thread(target=print, daemon=True).start()
    except RuntimeError:
        return False
    return True

found = {}
post(b"{}", {}, {**signed(b"{}"), "webhook-signature": "v1,no"})  # all that is imported late is there
body = b"x" * 12_000_000 if sys.argv[1] == "memory" else b"{}"
overrides = {"gunicorn.socket": ours} if sys.argv[1] == "slow bodies" else {}
headers = signed(body)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
unlimited = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + 1_500_000, unlimited[1]))
found["a thread starts"] = thread_starts()
found["within the limit"] = post(body, overrides, headers)
resource.setrlimit(resource.RLIMIT_AS, unlimited)
found["without it"] = post(body, overrides, headers)
sys.stdout.write(json.dumps(found))
sys.stdout.flush()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "lacking", [pytest.param("slow bodies", marks=pytest.mark.long), "committer", "memory"]
)
def test_a_delivery_without_threads_or_memory_is_503_until_they_return(tmp_path, lacking):
    environ = clean_environment() | {
        "BILLHOOK_SECRETS": SECRET,
        "BILLHOOK_ENGINE": "worker",
        "BILLHOOK_MAX_BODY_BYTES": "16000000",
        "BILLHOOK_DEADLINE_SECONDS": "60",
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
    }

    done = run_command([sys.executable, "-c", PROGRAM, lacking], cwd=tmp_path, env=environ)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "a thread starts": False,  # the control: the limit holds
        "within the limit": [503, True],
        "without it": [200, False],
    }
    cause = "storage" if lacking == "committer" else "resources"  # it is verified by then
    assert f"refused with 503 ({cause}: " in done.stderr
