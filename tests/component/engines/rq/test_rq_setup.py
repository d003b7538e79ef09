"""Whose RQ queue it is, what is refused of it, and what our function does with what anybody may send."""

from __future__ import annotations

import sys

import pytest
from redis import Redis
from rq import Queue
from rq.serializers import JSONSerializer

from billhook import Billhook
from billhook.engines.rq import engine as engine_module
from billhook.errors import ConfigError
from billhook.errors.program import install_command
from billhook.extension import get_state
from support.apps import deliver
from support.engines import handling, runs
from support.processes import run_command
from support.signing import SECRET


def queue(name="shop", serializer=JSONSerializer):
    """Return a queue of a user's; nothing listens at its Redis."""
    return Queue(name, connection=Redis(port=1), serializer=serializer)


@pytest.fixture
def shop(plain_app):
    """Makes apps with the rq engine, on a queue of the user's."""

    def make(users=None, handlers=None, **config):
        app = plain_app(BILLHOOK_ENGINE="rq", **config)
        if users is not None:
            app.extensions["rq"] = users
        Billhook(handlers=[handlers] if handlers else []).init_app(app)
        return app

    return make


def test_the_queue_is_the_one_among_the_flask_apps_extensions_or_the_one_that_an_option_names(
    shop, tmp_path, monkeypatch
):
    (tmp_path / "rq_tasks.py").write_text(
        "from redis import Redis\nfrom rq import Queue\n"
        "queue = Queue('named', connection=Redis(port=1), serializer='rq.serializers.JSONSerializer')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = queue()

    assert get_state(shop(own)).engine.queue is own
    assert get_state(shop(own, BILLHOOK_RQ_QUEUE="rq_tasks:queue")).engine.queue.name == "named"


@pytest.mark.parametrize(
    ("users", "said"),
    [
        (None, r'there is no RQ queue: put yours into app\.extensions\["rq"\]'),
        ("redis://", "is no RQ queue but a str"),
        (
            queue(serializer=None),
            r'with pickle, anyone .* Queue\("shop", .*rq\.serializers\.JSONSerializer\)',
        ),
        (queue(serializer="rq.serializers.DefaultSerializer"), "does not write JSON"),
    ],
)
def test_what_is_no_queue_in_json_is_refused_with_what_to_write(shop, users, said):
    with pytest.raises(ConfigError, match=said):
        shop(users)


def test_a_message_with_an_id_has_it_handled_and_any_other_does_nothing(shop, monkeypatch, caplog):
    calls = []
    app = shop(queue(), handling(calls.append, name="h"))
    deliver(app)
    jobs = Queue("shop", connection=Redis(port=1), serializer=JSONSerializer)
    monkeypatch.setattr(engine_module, "get_current_job", lambda: type("Job", (), {"origin": jobs.name}))
    no_ids = "1", 1.0, True, None, [1], 0, -1, 2**63
    messages = [*(((each,), {}) for each in no_ids), ((1, 1), {}), ((), {}), ((1,), {"x": 1})]

    for arguments, named in messages:
        engine_module.handle(*arguments, **named)

    assert (calls, runs(app)) == ([], [])
    assert caplog.text.count("rejected a message for billhook.handle") == len(messages)
    engine_module.handle(1)
    assert (len(calls), runs(app)) == (1, [("h", "succeeded", 1)])
    get_state(app).close()
    engine_module.handle(1)
    assert "received a message for a closed billhook" in caplog.text


WITHOUT = """
import sys
sys.modules["rq"] = None
from billhook.standalone import create_app
try:
    create_app({"BILLHOOK_SECRETS": sys.argv[1], "BILLHOOK_ENGINE": "rq"})
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_without_the_package_the_extra_is_named(tmp_path):
    ran = run_command([sys.executable, "-c", WITHOUT, SECRET], cwd=tmp_path, check=True)

    assert ran.stdout.startswith(
        f"MissingExtra BILLHOOK_ENGINE=rq needs the extra rq: {install_command('rq')}"
    )
