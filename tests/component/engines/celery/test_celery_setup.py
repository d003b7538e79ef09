"""Whose Celery app it is, what is refused of it, and what our task does with what anybody may send."""

from __future__ import annotations

import logging
import sys
import threading

import pytest
from celery import signals

from billhook import Billhook, Handlers
from billhook.engines import maintenance
from billhook.engines.celery import find_celery
from billhook.errors import ConfigError
from billhook.errors.program import install_command
from billhook.events import PingTest
from billhook.extension import get_state
from billhook.standalone import create_app
from support.apps import deliver, inbox_file
from support.engines import celery_app, handling, runs
from support.inbox_view import change, rows
from support.processes import run_command, until
from support.signing import SECRET

TASK = "billhook.handle"


@pytest.fixture
def shop(plain_app):
    """Makes apps with the celery engine, on a Celery app of the user's."""

    def make(celery, handlers=None, **config):
        app = plain_app(BILLHOOK_ENGINE="celery", **config)
        app.extensions["celery"] = celery
        Billhook(handlers=[handlers] if handlers else []).init_app(app)
        return app

    return make


# --- whose Celery app it is -----------------------------------------------------------------------


def test_the_celery_app_is_the_one_among_the_flask_apps_extensions(shop):
    celery = celery_app(accept_content=["json", "yaml", "msgpack"])  # all without code in them

    app = shop(celery)

    assert get_state(app).engine.celery is celery
    assert TASK in celery.tasks


def test_the_configured_celery_app_overrides_the_extension(tmp_path, monkeypatch):
    (tmp_path / "myshop_tasks.py").write_text(
        "from celery import Celery\ncelery = Celery('named', broker='memory://', set_as_current=False)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    environ = {
        "BILLHOOK_SECRETS": SECRET,
        "BILLHOOK_ENGINE": "celery",
        "BILLHOOK_CELERY_APP": "myshop_tasks:celery",
    }

    app = create_app(environ)
    app.extensions["billhook"].close()

    assert app.extensions["celery"].main == "named"
    assert app.extensions["celery"] is sys.modules["myshop_tasks"].celery


def test_a_missing_celery_app_raises_with_the_remedy():
    none = r"there is no Celery app: put yours into app.extensions\[\"celery\"\] .* BILLHOOK_CELERY_APP"
    for extensions, path, text in (
        ({}, None, none),
        ({"celery": object()}, None, r'app.extensions\["celery"\] is no Celery app but a object'),
        ({}, "support.inbox_view:rows", "'support.inbox_view:rows' is no Celery app but a function"),
        ({}, "support", "is 'support': write MODULE:NAME, as myshop.tasks:celery"),
        ({}, ":celery", "is ':celery': write MODULE:NAME"),
        ({}, "nowhere.at.all:celery", "there is no module 'nowhere.at.all' here"),
        ({}, "support.inbox_view:celery", "there is no 'celery' in that module, or not yet"),
    ):
        with pytest.raises(ConfigError, match=text):
            find_celery(extensions, path)


def test_an_import_error_of_the_users_celery_module_is_raised_unchanged(tmp_path, monkeypatch):
    (tmp_path / "broken_tasks.py").write_text("import not_installed_here\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ModuleNotFoundError, match="not_installed_here"):
        find_celery({}, "broken_tasks:celery")


WITHOUT = """
import sys
sys.modules["celery"] = None
from billhook.standalone import create_app
try:
    create_app({"BILLHOOK_SECRETS": sys.argv[1], "BILLHOOK_ENGINE": "celery"})
except Exception as error:
    print(type(error).__name__, error)
"""
WITHOUT_NEED = """
import sys
from billhook.standalone import create_app
create_app({"BILLHOOK_SECRETS": sys.argv[1], "BILLHOOK_ENGINE": "worker"})
print([name for name in ("celery", "kombu") if name in sys.modules])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "printed"),
    [
        (WITHOUT, f"MissingExtra BILLHOOK_ENGINE=celery needs the extra celery: {install_command('celery')}"),
        (WITHOUT_NEED, "[]"),
    ],
)
def test_celery_is_imported_only_for_the_celery_engine(tmp_path, program, printed):
    ran = run_command([sys.executable, "-c", program, SECRET], cwd=tmp_path, check=True)

    assert ran.stdout.startswith(printed)


# --- what is refused ------------------------------------------------------------------------------


def test_a_celery_app_that_takes_pickle_is_refused(shop):
    for setting, value in (
        ("accept_content", ["json", "pickle"]),
        ("accept_content", ["application/x-python-serialize"]),
        ("accept_content", None),
        ("result_accept_content", ["pickle"]),
        ("task_serializer", "pickle"),
        ("result_serializer", "pickle"),
    ):
        told = f"{setting} is .*: with pickle, anyone who can write to the broker"
        with pytest.raises(ConfigError, match=told):
            shop(celery_app(**{setting: value}))


def test_a_celery_app_whose_configuration_is_read_already_is_looked_at_too(shop):
    celery = celery_app(accept_content=["pickle"])
    assert celery.conf.accept_content == ["pickle"]

    with pytest.raises(ConfigError, match="accept_content is"):
        shop(celery)


@pytest.mark.parametrize("accepted", [["msgpack"], [], ["application/x-yaml"]])
def test_a_celery_app_whose_workers_take_no_json_is_refused(shop, accepted):
    told = r'workers would refuse billhook.s messages, which are JSON; add "json"'
    with pytest.raises(ConfigError, match=told):
        shop(celery_app(accept_content=accepted))


@pytest.mark.parametrize("url", ["redis://127.0.0.1/0", "rediss://h/0", ["sentinel://a", "sentinel://b"]])
def test_a_broker_without_its_package_is_refused_with_the_command(shop, monkeypatch, url):
    monkeypatch.setattr("billhook.engines.celery.app.find_spec", lambda name: None)

    with pytest.raises(ConfigError, match="the package redis is missing: pip install redis"):
        shop(celery_app(broker_url=url))
    shop(celery_app(broker_url="memory://"))


def test_the_users_celery_configuration_is_applied_first(shop):
    celery, configured, finalized = celery_app(), [], []

    shop(celery)
    celery.on_after_configure.connect(lambda **_: configured.append(1), weak=False)
    celery.on_after_finalize.connect(lambda **_: finalized.append(1), weak=False)
    assert celery.tasks[TASK].name == TASK

    assert (configured, finalized) == ([1], [1])


def test_a_celery_app_serves_one_inbox(shop, tmp_path):
    celery = celery_app()
    first = shop(celery)
    again = shop(celery)  # a test that makes its app anew

    with pytest.raises(ConfigError, match=r"handles the deliveries of the inbox .* one of its own"):
        shop(celery, BILLHOOK_INBOX_URL=f"sqlite:///{tmp_path / 'another.db'}")
    for app in (first, again):
        app.extensions["billhook"].close()

    shop(celery, BILLHOOK_INBOX_URL=f"sqlite:///{tmp_path / 'another.db'}")


def test_an_app_that_could_not_be_set_up_leaves_the_celery_app_alone(plain_app):
    celery, twins = celery_app(), [Handlers(), Handlers()]
    for handlers in twins:
        handlers.on(PingTest, name="same")(lambda event: None)
    app = plain_app(BILLHOOK_ENGINE="celery")
    app.extensions["celery"] = celery

    with pytest.raises(ConfigError, match="two handlers are named"):
        Billhook(handlers=twins).init_app(app)

    assert not hasattr(celery, "billhook")


# --- what a message does --------------------------------------------------------------------------


def test_the_task_is_acknowledged_late_and_stores_no_result(shop):
    celery = celery_app(task_acks_late=False, task_ignore_result=False, task_serializer="json")
    shop(celery)

    task = celery.tasks[TASK]

    assert (task.acks_late, task.reject_on_worker_lost, task.ignore_result) == (True, True, True)
    assert task.serializer == "json"


def test_a_message_with_an_id_has_it_handled_and_any_other_does_nothing(shop, caplog):
    calls = []
    celery = celery_app()
    app = shop(celery, handling(calls.append, name="h"))
    deliver(app)
    no_ids = "1", 1.0, True, None, [1], 0, -1, 2**63
    messages = [*(((each,), {}) for each in no_ids), ((1, 1), {}), ((), {}), ((1,), {"x": 1})]
    messages.append(((), {"delivery_id": 1}))

    for arguments, named in messages:
        celery.tasks[TASK](*arguments, **named)

    assert (calls, runs(app)) == ([], [])
    rejected = "rejected a message for billhook.handle: its argument is not a delivery id"
    assert caplog.text.count(rejected) == len(messages)
    celery.tasks[TASK](1)
    assert (len(calls), runs(app)) == (1, [("h", "succeeded", 1)])
    assert caplog.text.count(rejected) == len(messages)


def test_a_message_for_an_app_that_is_closed_does_nothing(shop, caplog):
    celery = celery_app()
    app = shop(celery)
    deliver(app)
    app.extensions["billhook"].close()

    celery.tasks[TASK](1)

    assert "received a message for a closed billhook" in caplog.text


@pytest.mark.slow
def test_errors_while_handling_a_message_do_not_end_the_worker(shop, caplog, monkeypatch):
    celery = celery_app()
    app = shop(celery)
    deliver(app)
    inbox_file(app).rename(inbox_file(app).with_name("away"))

    celery.tasks[TASK](1)
    monkeypatch.setattr(get_state(app).engine, "_idle", None)
    celery.tasks[TASK](1)

    told = [record for record in caplog.records if "stays in" in record.message]
    assert [record.exc_info is not None for record in told] == [False, True]
    inbox_file(app).with_name("away").rename(inbox_file(app))


# --- what a worker's beginning and end do ---------------------------------------------------------


class Worker:
    """What Celery gives as the sender of its signals: anything with the app."""

    def __init__(self, app):
        self.app = app


@pytest.mark.slow
def test_sweeping_starts_and_stops_with_the_apps_celery_worker(shop):
    celery = celery_app()
    app = shop(celery)
    publisher = get_state(app).engine._publisher

    signals.worker_ready.send(sender=Worker(celery_app()))
    assert publisher._thread is None
    signals.worker_ready.send(sender=Worker(celery))
    assert publisher._thread.is_alive()
    assert publisher._sweep is not None
    signals.worker_shutting_down.send(sender="celery@host")
    publisher._thread.join(5)

    assert not publisher._thread.is_alive()


@pytest.mark.slow
def test_a_celery_worker_prunes_old_deliveries(shop, monkeypatch):
    monkeypatch.setattr(maintenance, "FIRST_SECONDS", 0.0)
    celery = celery_app()
    app = shop(celery)
    deliver(app)
    celery.tasks[TASK](1)
    change(inbox_file(app), "UPDATE delivery SET received_at = '2020-01-01 00:00:00.000000'")
    signals.worker_ready.send(sender=Worker(celery))

    until(lambda: rows(inbox_file(app), "SELECT state FROM delivery") in ([], [("pruned",)]))


def test_a_worker_whose_configuration_takes_pickle_by_now_ends(shop):
    celery = celery_app()
    shop(celery)
    signals.worker_init.send(sender=Worker(celery))
    celery.conf.accept_content = ["pickle"]
    signals.worker_init.send(sender=Worker(celery_app()))

    with pytest.raises(SystemExit, match=r"Error: the Celery app's accept_content is \['pickle'\]"):
        signals.worker_init.send(sender=Worker(celery))


def test_celery_worker_signals_of_a_closed_app_do_nothing(shop, caplog):
    celery = celery_app()
    shop(celery).extensions["billhook"].close()
    celery.conf.accept_content = ["pickle"]

    with caplog.at_level(logging.ERROR):
        signals.worker_init.send(sender=Worker(celery))
        signals.worker_ready.send(sender=Worker(celery))
        signals.worker_shutting_down.send(sender="celery@host")

    assert caplog.text == ""


@pytest.mark.slow
def test_the_celery_engine_starts_explicitly_or_with_the_first_delivery(shop):
    app = shop(celery_app())
    engine = get_state(app).engine

    get_state(app).start()
    thread = engine._publisher._thread
    deliver(app)

    assert thread is engine._publisher._thread
    assert "billhook-watch" in {each.name for each in threading.enumerate()}
    assert engine._publisher._sweep is None  # the workers do that


def test_a_closed_celery_engine_publishes_and_handles_again_once_it_is_started(shop):
    celery = celery_app()
    app = shop(celery)
    state = get_state(app)
    published = []
    state.engine._publisher._broker.publish = published.append
    for expected in ([1], [1, 2]):
        state.start()
        assert celery.billhook is state.engine
        deliver(app, message_id=f"m{expected[-1]}")
        until(lambda numbers=expected: published == numbers)
        state.close()
        assert celery.billhook is None
