"""The pages with figures: their tables and pictures are made from the measurements that are committed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "tests" / "bench"


@pytest.fixture(autouse=True)
def _bench_on_the_path(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])


def test_the_capacity_table_is_computed_from_the_figures():
    import capacity

    page = (ROOT / "deploy" / "CAPACITY.md").read_text(encoding="utf-8")
    assert f"\n\n{capacity.table()}\n\n" in page


def figures_of(name):
    return json.loads((BENCH / "figures" / f"{name}.json").read_text(encoding="utf-8"))


def test_each_picture_is_drawn_from_the_committed_figures_and_is_on_the_page():
    import plot

    page = (BENCH / "README.md").read_text(encoding="utf-8")
    for name in plot.PICTURES:
        drawn = plot.PICTURES[name](figures_of(name))
        assert (BENCH / "figures" / f"{name}.svg").read_text(encoding="utf-8") == drawn
        assert f"](figures/{name}.svg)" in page
    assert {path.stem for path in (BENCH / "figures").iterdir()} == set(plot.PICTURES)


def test_control_other_figures_give_another_picture():
    import plot

    receiver, workers = figures_of("receiver"), figures_of("workers")
    drawn = plot.draw(receiver), plot.draw_workers(workers)
    for panel in receiver.values():
        panel["standalone"][0]["rate"] *= 2
    workers["billhook sqlite"] = [rate * 2 for rate in workers["billhook sqlite"]]
    assert plot.draw(receiver) != drawn[0]
    assert plot.draw_workers(workers) != drawn[1]


def test_every_script_that_measures_writes_json():
    scripts = {path.name: path.read_text(encoding="utf-8") for path in BENCH.glob("*.py")}
    measuring = [name for name, text in scripts.items() if re.search(r"options\(\s*__doc__", text)]

    assert len(measuring) == 16
    assert [name for name in measuring if "save(given" not in scripts[name]] == []


def test_the_receivers_table_has_the_committed_figures():
    import receiver

    page = (BENCH / "README.md").read_text(encoding="utf-8")
    for measured in figures_of("receiver").values():
        assert f"\n\n{receiver.table(measured)}\n\n" in page
