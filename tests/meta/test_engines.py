"""The kinds of engines: each is described once, and a new row is right everywhere or fails here."""

from __future__ import annotations

import ast
import re
import shutil
import sys
from pathlib import Path
from pkgutil import resolve_name

import pytest

import billhook
from billhook.basics.engine_kinds import ENGINES, engine_options
from billhook.engines import Engine
from support.engines import FOREIGN
from support.pages import PAGES
from support.processes import clean_environment, run_command
from support.signing import SECRET
from support.source import modules

HANDLERS = """
from billhook import Handlers
from billhook.events import PingTest
handlers = Handlers()

@handlers.on(PingTest, timeout_seconds=30)
def note(event):
    ...
"""
ROW = """
RABBIT = EngineKind(
    "rabbit", Place.WORKER, "handlers run in the rabbit's workers", "; make sure that one is running",
    help="your rabbit's workers", code="rabbits:Rabbit", command="rabbit {app} --work", extension="rabbit",
)

ENGINES: """
CODE = """
from billhook.basics.engine_kinds import ENGINES
from billhook.engines import Engine

class Rabbit(Engine):
    kind = ENGINES["rabbit"]

    def bind(self, extensions):
        extensions["rabbit"] = "the rabbit"
"""


def test_the_class_of_each_engine_has_its_row():
    for name, kind in engine_options().items():
        engine = resolve_name(kind.code)

        assert issubclass(engine, Engine), name
        assert engine.kind is kind, f"{kind.code} lacks kind = … of the engine {name}"


def test_each_engine_that_an_option_names_has_a_row_in_the_chapter():
    rows = re.findall(r"^\| `(\w+)`.*\| .+ \|$", PAGES["src/billhook/engines/README.md"], re.MULTILINE)

    assert {*rows} == {*engine_options()}, "the first table of src/billhook/engines/README.md"


def test_every_engine_is_run_by_the_tests_of_what_every_engine_promises():
    assert {name for name, kind in ENGINES.items() if kind.is_foreign} == {*FOREIGN}, (
        "tests/support/engines.py"
    )


def test_no_module_asks_for_an_engine_by_its_name():
    def asked(node: ast.AST) -> list[str]:
        if not isinstance(node, ast.Compare) or "engine" not in ast.unparse(node.left):
            return []
        texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
        return [ast.unparse(node) for text in texts if text in ENGINES]

    found = {
        name: [one for node in module.nodes for one in asked(node)] for name, module in modules().items()
    }

    assert {name: each for name, each in found.items() if each} == {}
    assert asked(ast.parse("settings.engine == 'celery'", mode="eval").body) != []


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a copy of the package that has a row for one more engine."""
    folder = tmp_path_factory.mktemp("rabbit")
    shutil.copytree(Path(billhook.__file__).parent, folder / "billhook")
    table = folder / "billhook" / "basics" / "engine_kinds.py"
    text = table.read_text()
    for before, after in (("\nENGINES: ", ROW), ("(THREAD, WORKER, ", "(THREAD, WORKER, RABBIT, ")):
        assert text.count(before) == 1
        text = text.replace(before, after)
    table.write_text(text)
    (folder / "rabbits.py").write_text(CODE)
    (folder / "hooks.py").write_text(HANDLERS)
    (folder / "rabbit_of_the_app.py").write_text("from billhook.standalone import rabbit; print(rabbit)")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("-m billhook options", 0, "`billhook worker`), rabbit (your rabbit's workers), celery (your"),
        ("-m billhook check hooks.py", 0, "rabbit: handlers run in the rabbit's workers; make sure that one"),
        ("-m billhook doctor hooks.py", 0, "start one: rabbit billhook.standalone:rabbit --work"),
        ("-m billhook status", 0, "no worker is running billhook doctor"),
        (
            "-m billhook worker hooks.py",
            2,
            "start them as `rabbit billhook.standalone:rabbit --work`, and the receiver as `gunicorn",
        ),
        ("rabbit_of_the_app.py", 0, "the rabbit"),
    ],
)
def test_an_engine_that_is_added_to_the_table_is_known_to_every_command(place, command, code, said):
    environ = clean_environment(BILLHOOK_SECRETS=SECRET, BILLHOOK_ENGINE="rabbit", PYTHONPATH=str(place))

    ran = run_command([sys.executable, *command.split()], cwd=place, env={**environ, "COLUMNS": "2000"})

    printed = ran.stdout + ran.stderr
    assert ran.returncode == code, printed
    assert said in " ".join(printed.split()), printed
    assert "Traceback" not in printed
