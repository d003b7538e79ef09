"""The names that users import or write, and the files beside the code, in an installed wheel.

An editable install hides a file that the wheel lacks, and a name that only the checkout has.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.pages import PAGES
from support.processes import run_command

ROOT = Path(__file__).parents[2]
SPOKEN_OF = {"src/billhook/README.md", "tests/README.md", "CHANGELOG.md"}
"""Pages that speak of the inside, which users import nothing of."""
DOTTED = re.compile(r"\bbillhook(?:\.[A-Za-z_]+)+(?::[a-z_]+)?")
IMPORT = re.compile(r"^\s*(?:\$ |>>> )?from (billhook[a-z_.]*) import (\([^)]*\)|[^\n#(]+)", re.MULTILINE)
NO_NAMES = {
    *("billhook.alive", "billhook.conf", "billhook.db", "billhook.env", "billhook.yaml"),  # files
    *("billhook.billhook_worker", "billhook.delivery", "billhook.handle"),  # tables, and a task of Celery
}
RESOLVE = """
import json, sys
from importlib import import_module
import billhook

def resolve(name):
    parts = name.replace(":", ".").split(".")
    found = billhook
    for number, part in enumerate(parts[1:], 2):
        try:
            found = getattr(found, part)
        except AttributeError:
            found = import_module(".".join(parts[:number]))

missing = {}
for name in json.load(sys.stdin):
    try:
        resolve(name)
    except SystemExit:  # it is there, and says which option it needs
        pass
    except Exception as error:
        missing[name] = f"{type(error).__name__}: {error}"
print(json.dumps([billhook.__file__, missing]))
"""


def loggers() -> set[str]:
    surface = (ROOT / "tests" / "meta" / "surface.txt").read_text()
    section, _, _ = surface.partition("# loggers\n")[2].partition("\n# ")
    return set(re.findall(r"^(billhook\.\w+)$", section, re.MULTILINE))


def texts() -> list[str]:
    """What users read and copy."""
    files = [*(ROOT / "deploy").rglob("*"), *(ROOT / "examples").rglob("*.py")]
    kept = [path for path in files if path.suffix in {".py", ".service", ".yaml", ".env"}]
    return [text for page, text in PAGES.items() if page not in SPOKEN_OF] + [
        path.read_text(encoding="utf-8") for path in kept
    ]


def written_names() -> set[str]:
    """Return each name of billhook's that users import, or write into a configuration."""
    entry_points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {entry_points["scripts"]["billhook"], entry_points["entry-points"]["flask.commands"]["billhook"]}
    for text in texts():
        names |= set(DOTTED.findall(text))
        for module, imported in IMPORT.findall(text):
            parts = [part.split(" as ")[0].strip() for part in imported.strip("()").split(",")]
            names |= {module if part in {"*", ""} else f"{module}.{part}" for part in parts}
    return names - NO_NAMES - loggers()


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder with billhook as pip installs it from a wheel."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run_command([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    run_command([*pip, "install", "--no-deps", "--target", str(folder / "site"), str(wheel)], check=True)
    return folder / "site"


def resolve(site: Path, names: set[str]) -> dict[str, str]:
    """Return which of the names an installation lacks, with the error."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site)!r})\n{RESOLVE}"]
    ran = subprocess.run(command, input=json.dumps(sorted(names)), capture_output=True, text=True, check=True)
    found, missing = json.loads(ran.stdout)
    assert Path(found).is_relative_to(site)
    assert isinstance(missing, dict)
    return missing


@pytest.mark.slow
def test_every_name_that_users_write_is_in_the_wheel(installed):
    names = written_names()

    assert {
        "billhook.inbox.Deliveries",
        "billhook.inbox.actions.recorded",
        "billhook.inbox.conditions",
        "billhook.inbox.overview",
        "billhook.gunicorn_conf",
        "billhook.gunicorn_worker.AsgiWorker",
        "billhook.logs.JsonFormatter",
        "billhook.standalone:celery",
    } < names
    # Of copies of an earlier gunicorn.conf.py.
    assert resolve(installed, {*names, "billhook.gunicorn_log"}) == {}


@pytest.mark.slow
def test_control_a_name_that_is_gone_is_noticed(installed):
    missing = resolve(installed, {"billhook.inbox.gone", "billhook.events.InvoiceApprove", "billhook.events"})

    assert missing.keys() == {"billhook.inbox.gone", "billhook.events.InvoiceApprove"}


@pytest.mark.slow
def test_every_file_of_the_package_is_in_the_wheel(installed):
    source = ROOT / "src"
    files = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    shipped = {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()}

    wanted = {path for path in files if "__pycache__" not in path.parts and path.suffix != ".pyc"}
    wanted.remove(Path("billhook_version.py"))  # of the build alone
    assert wanted - shipped == set()
    assert {str(path) for path in wanted} > {
        "billhook/inbox/migrations/versions/0001_inbox.py",
        "billhook/signals.pyi",
        "billhook/py.typed",
        "billhook/cli/RUNBOOK.md",
    }
