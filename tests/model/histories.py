"""Run histories: from a seed, or from a list of steps that is to be repeated or shortened.

python -m model.histories SEED[-SEED] [STEPS] [FILE]     in tests/; --help says more
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from model.driver import Difference, Driver
from model.own_types import know
from model.rules import Forbidden
from model.stepped import Monotonic, compiled_once, stepped_time
from model.steps import Step, choose, take
from support.inbox_view import hang_up, place_of
from support.postgres import fresh_schema
from support.templates import new_inbox

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where files are synced at once: nothing is cut off here."""
MakeUrl = Callable[[], AbstractContextManager[str | None]]


def sqlite() -> AbstractContextManager[str | None]:
    """Give each history a file of its own."""
    return nullcontext(None)


@contextmanager
def postgresql(server_url: str | None = None) -> Iterator[str | None]:
    """Give each history a schema of a server, by default of the one that tests use."""
    with fresh_schema(server_url or os.environ["BILLHOOK_TEST_POSTGRES_URL"]) as url:
        place = new_inbox(url)
        try:
            yield place
        finally:
            hang_up(place_of(place))


def run(seed: int, number: int, steps: Sequence[Step] | None = None, url: MakeUrl = sqlite) -> list[Step]:
    """Run a history of so many steps, or these; returns the steps. Raises Failed where the two differ."""
    chance, taken = random.Random(seed), []
    monotonic = Monotonic()
    with (
        _without_log(),
        tempfile.TemporaryDirectory(prefix="billhook-model-", dir=MEMORY) as folder,
        stepped_time(monotonic),
        compiled_once(),
        url() as place,
    ):
        driver = Driver(Path(folder), place, seed, monotonic)
        try:
            for index in range(number if steps is None else len(steps)):
                step = choose(chance, driver) if steps is None else steps[index]
                taken.append(step)
                take(driver, step)
                driver.check()
            driver.settle_down()
        except (Difference, Forbidden) as error:
            raise Failed(seed, taken, error) from error
        finally:
            driver.close()
            know(())
    return taken


@contextmanager
def _without_log() -> Iterator[None]:
    """Leave out what billhook logs meanwhile: handlers of a history fail on purpose, by the hundred."""
    log = logging.getLogger("billhook")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


class Failed(AssertionError):
    """The history of a seed shows a difference."""

    def __init__(self, seed: int, steps: list[Step], error: Exception) -> None:
        self.seed, self.steps, self.error = seed, steps, error
        self.kind = str(error).split(" ")[0]
        """Another difference is not what is shortened."""
        again = f"cd tests && python -m model.histories {seed} {len(steps)}"
        super().__init__(f"seed {seed}, step {len(steps)} {steps[-1]}: {error}\nagain: {again}")


def shorten(seed: int, steps: list[Step], url: MakeUrl = sqlite) -> Failed:
    """Leave out what is not needed for a difference; return the shortest history that was found."""
    failed = _fails(seed, steps, url)
    if failed is None:
        raise ValueError("the history shows no difference when it is repeated")
    size = max(1, len(failed.steps) // 2)
    while size:
        start = 0
        while start < len(failed.steps):
            shorter = failed.steps[:start] + failed.steps[start + size :]
            found = _fails(seed, shorter, url)
            if found is None or found.kind != failed.kind:
                start += size
            else:
                failed = found
        size //= 2
    return failed


def _fails(seed: int, steps: list[Step], url: MakeUrl) -> Failed | None:
    try:
        run(seed, 0, steps, url)
    except Failed as failed:
        return failed
    return None


def seeds(given: str) -> range:
    first, _, last = given.partition("-")
    return range(int(first), int(last or first) + 1)


_ABOUT = """Repeat the history of a seed, and shorten it if the inbox and the rules differ; or run those of
some seeds (1-200), until one differs. With FILE each seed that is finished is written to it, and those that
are in it are left out: the same command goes on where it was ended. MODEL_ON=postgresql uses the server of
BILLHOOK_TEST_POSTGRES_URL instead of SQLite. Ends with 1 where one differs."""


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m model.histories", description=_ABOUT)
    parser.add_argument(
        "seeds", metavar="SEED[-SEED]", type=seeds, help="one seed, or the first and the last"
    )
    parser.add_argument("steps", metavar="STEPS", type=int, nargs="?", default=60, help="of each (60)")
    parser.add_argument("file", metavar="FILE", type=Path, nargs="?", help="the seeds that are finished")
    given = parser.parse_args()
    url = postgresql if os.environ.get("MODEL_ON") == "postgresql" else sqlite
    log: Path | None = given.file
    done = set(log.read_text().split()) if log is not None and log.exists() else set()
    for seed in given.seeds:
        if str(seed) in done:
            continue
        try:
            run(seed, given.steps, url=url)
        except Failed as failed:
            sys.stdout.write(f"{failed}\n")
            if len(given.seeds) == 1:
                shortest = shorten(seed, failed.steps, url)
                sys.stdout.write("".join(f"    {step}\n" for step in shortest.steps))
                sys.stdout.write(f"{shortest.error}\n")
            sys.exit(1)
        if log is not None:
            with log.open("a") as file:
                file.write(f"{seed}\n")


if __name__ == "__main__":
    main()
