"""Change the source in one place, run the tests of that part, and see whether one fails; some 500 times.

    python tests/mutation/mutate.py [--area runs] [--seed 29] [--processes 2] [--tests CHECKOUT] [--write]

A mutant is one changed expression or statement, at module level too, where the inbox's rules are SQL. The
same seed gives the same mutants, but for those of lines that changed. `results.txt` has what became of each,
and why a survivor is left; exit code 1 if one survives that was killed there. `--write` replaces there what
it says of the files that were tried. `--tests` takes the tests of another checkout.
Tests with `postgres` in their names, and those of the search for schemes, are left out: they take long.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from coverage import CoverageData
from mutants import Mutant, sample_mutants

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).with_name("results.txt")
SECONDS_OF_A_TEST = 60
PLUGINS = ("pytest_timeout", "pytest_cov", "_hypothesis_pytestplugin", "billhook_pytest")


@dataclass(frozen=True)
class Area:
    """Source files with the number of mutants of each, and the tests that have to notice them.

    The tests that are likeliest to notice come first; they run on SQLite alone.
    """

    sources: dict[str, int]
    tests: tuple[str, ...]


SIGNING = ("tests/unit/signing",)
INBOX = ("tests/component/inbox", "tests/unit/inbox")
RUNS = ("tests/component/inbox/running", "tests/component/inbox/operating/test_replay.py")
COUNTING = "tests/component/inbox/counting"
AREAS = {
    "signing": Area(
        {
            "signing/scheme.py": 25,
            "signing/parsing.py": 12,
            "signing/times.py": 13,
            "signing/template.py": 16,
            "signing/presets.py": 4,
            "signing/content_template.py": 10,
            "signing/standard_webhooks.py": 5,
        },
        SIGNING,
    ),
    "receiver": Area(
        {"receiver/delivery_rules.py": 40, "receiver/wsgi.py": 20},
        ("tests/unit/receiver", "tests/component/receiver", "tests/component/cli/test_check.py"),
    ),
    "event-loop": Area({"receiver/asgi.py": 30}, ("tests/component/receiver",)),
    "commits": Area(
        {"inbox/storing/committer.py": 30}, ("tests/component/inbox/storing", "tests/component/receiver")
    ),
    "counts": Area({"inbox/counting/counts.py": 30, "inbox/storing/buffered_counts.py": 30}, (COUNTING,)),
    "ingest": Area(
        {"inbox/storing/ingest.py": 22}, ("tests/component/inbox/storing/test_conflicts.py", *INBOX)
    ),
    "runs": Area(
        {
            "inbox/running/runs.py": 24,
            "inbox/running/planning.py": 8,
            "inbox/running/content_duplicates.py": 10,
            "inbox/running/transaction.py": 10,
        },
        RUNS,
    ),
    "claims": Area(
        {"inbox/running/due.py": 12, "inbox/running/claims.py": 8, "inbox/running/leases.py": 10},
        RUNS,
    ),
    "limits": Area(
        {"inbox/running/limits.py": 22},
        (*INBOX, "tests/component/engines/test_limits.py", "tests/component/engines/test_pause.py"),
    ),
    "retention": Area(
        {"inbox/counting/retention.py": 18}, ("tests/component/inbox/counting/test_retention.py", *INBOX)
    ),
    "retry": Area(
        {"handlers/retry.py": 6, "handlers/grouping.py": 4},
        ("tests/unit/handlers", "tests/component/engines"),
    ),
    "dispatcher": Area(
        {"engines/dispatcher.py": 20},
        ("tests/component/engines/test_dispatching.py", "tests/component/effects", "tests/component/engines"),
    ),
    "cycle": Area(
        {"engines/cycle.py": 30, "engines/worker.py": 30},
        (
            "tests/component/engines/test_claim_window.py",
            "tests/component/engines/test_stopping.py",
            "tests/unit/engines",
            "tests/component/engines/test_reading.py",
            "tests/component/engines/test_suspects.py",
            "tests/component/engines/test_held_workers.py",
            "tests/component/engines/test_process_lifecycle.py",
            "tests/component/engines/test_late_workers.py",
            "tests/component/engines/test_newest_list.py",
            "tests/component/engines/test_every_engine.py",
            "tests/component/inbox/running/test_unconfirmed_claims.py",
        ),
    ),
    "pacing": Area({"engines/pacing.py": 30}, ("tests/unit/engines",)),
    "suspects": Area({"engines/suspects.py": 15}, ("tests/component/engines/test_suspects.py",)),
    "rating": Area(
        {"sandbox/billing/usage/rating.py": 25},
        ("tests/unit/sandbox", "tests/component/sandbox/test_bills.py"),
    ),
}


class Copy:
    """A copy of the checkout in a folder of its own, in which one mutant at a time is tried."""

    def __init__(self, folder: Path, tests: Path) -> None:
        self.folder = folder
        for root, wanted in ((ROOT, ()), (tests, ("tests",))):
            names = subprocess.run(
                ["git", "ls-files", "-z", *wanted], cwd=root, capture_output=True, text=True, check=True
            )
            for name in names.stdout.split("\0"):
                if name and (root / name).is_file() and (wanted or not name.startswith("tests/")):
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(root / name, folder / name)

    def run(self, tests: Sequence[str], limit: float, *options: str) -> bool:
        """Run tests until the first failure; return whether all passed. A run that hangs has failed."""
        plugins = [f"-p{name}" for name in PLUGINS]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-pno:cacheprovider", *plugins, *options]
        variables = {name: text for name, text in os.environ.items() if not name.startswith("BILLHOOK_")}
        process = subprocess.Popen(
            [*command, f"--timeout={SECONDS_OF_A_TEST}", "-k", "not postgres and not test_search", *tests],
            cwd=self.folder,
            # Loading all the plugins that are installed takes longer than many a run.
            env={**variables, "PYTHONPATH": str(self.folder / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=(self.folder / "output.txt").open("w"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(limit) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what a failed test left behind
            process.wait()

    def run_control(self, tests: Sequence[str]) -> dict[str, dict[int, list[str]]]:
        """Run the tests without a mutant: all pass. Return the tests that execute each line of each file."""
        if not self.run(tests, 900, "--cov=billhook", "--cov-context=test", "--cov-report="):
            output = (self.folder / "output.txt").read_text()
            sys.exit(f"the tests fail without a mutant:\n{output}")
        data = CoverageData(str(self.folder / ".coverage"))
        data.read()
        source = self.folder / "src/billhook"
        return {
            Path(name).relative_to(source).as_posix(): data.contexts_by_lineno(name)
            for name in data.measured_files()
        }

    def survives(self, mutant: Mutant, tests: Sequence[str], limit: float) -> bool:
        """Return whether a mutant of this copy passes the tests."""
        path = self.folder / "src/billhook" / mutant.path
        original = path.read_text()
        try:
            _write(path, mutant.text)
            return self.run(tests, limit)
        finally:
            _write(path, original)


_written = iter(range(1_000_000_000, 2_000_000_000))


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    # Bytecode is taken for current by seconds and size, which two mutants may share.
    moment = next(_written)
    os.utime(path, (moment, moment))


def main() -> int:
    """Try the mutants, print what became of each, and compare with what is written down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--area", choices=AREAS, action="append", help="only this one; may be repeated")
    parser.add_argument("--seed", default="29")
    parser.add_argument("--processes", type=int, default=2, help="tests that run at once")
    parser.add_argument("--tests", type=Path, default=ROOT, metavar="CHECKOUT")
    parser.add_argument("--write", action="store_true", help="write results.txt")
    options = parser.parse_args()
    before, began = _read_results(), time.monotonic()
    after: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(options.processes):
            copies.put(Copy(Path(folder) / str(number), options.tests))
        for name in options.area or AREAS:
            after |= _try_area(AREAS[name], options.seed, copies, options.processes)
    killed = sum(fate == "killed" for fate in after.values())
    summary = f"{len(after)} mutants of seed {options.seed}, {killed} killed, {len(after) - killed} survived"
    print(f"{summary}, in {time.monotonic() - began:.0f} s")
    weaker = [
        name for name, fate in after.items() if fate == "survived" and before.get(name) == ("killed", "")
    ]
    for name in weaker:
        print("killed before, survived now:", name)
    if options.write:
        tried = {name.split()[0] for name in after}
        fates = {name: fate for name, (fate, _) in before.items() if name.split()[0] not in tried} | after
        lines = [f"{fate}  {name}{_reason(before, name)}" for name, fate in fates.items()]
        RESULTS.write_text("\n".join(["# The fate of each mutant on SQLite, file by file.", *lines, ""]))
    return 1 if weaker else 0


def _try_area(area: Area, seed: str, copies: SimpleQueue[Copy], processes: int) -> dict[str, str]:
    mutants = [
        mutant
        for path, number in area.sources.items()
        for mutant in sample_mutants(ROOT / "src/billhook", path, number, seed)
    ]
    copy = copies.get()
    tests = [name for name in area.tests if (copy.folder / name).exists()]
    began = time.monotonic()
    executed_by = copy.run_control(tests)
    limit = 2 * (time.monotonic() - began) + 30
    copies.put(copy)

    def attempt(mutant: Mutant) -> str:
        one = copies.get()
        try:
            chosen = _tests_of(mutant, executed_by[mutant.path]) or tests
            fate = "survived" if one.survives(mutant, chosen, limit) else "killed"
        finally:
            copies.put(one)
        print(f"{fate}  {mutant.name}", flush=True)
        return fate

    with ThreadPoolExecutor(processes) as pool:
        return dict(zip((mutant.name for mutant in mutants), pool.map(attempt, mutants), strict=True))


def _tests_of(mutant: Mutant, executed_by: dict[int, list[str]]) -> list[str]:
    """Return the tests that execute the mutant's lines; none if importing the file executes them."""
    contexts = {name for line in mutant.lines for name in executed_by.get(line, [])}
    return [] if "" in contexts else sorted({name.rpartition("|")[0] for name in contexts})


def _read_results() -> dict[str, tuple[str, str]]:
    """Read what became of each mutant, and the reason why a survivor is left."""
    if not RESULTS.exists():
        return {}
    lines = [line.split("  ", 1) for line in RESULTS.read_text().splitlines() if not line.startswith("#")]
    return {rest.partition("  # ")[0]: (fate, rest.partition("  # ")[2]) for fate, rest in lines}


def _reason(before: dict[str, tuple[str, str]], name: str) -> str:
    why = before.get(name, ("", ""))[1]
    return f"  # {why}" if why else ""


if __name__ == "__main__":
    sys.exit(main())
