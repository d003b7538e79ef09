"""The pages with figures: their tables and pictures are made from the measurements that are committed."""

from __future__ import annotations

import json
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


def test_the_picture_of_the_receivers_is_drawn_from_the_figures():
    import plot

    figures = json.loads((BENCH / "figures" / "receiver.json").read_text(encoding="utf-8"))
    assert (BENCH / "figures" / "receiver.svg").read_text(encoding="utf-8") == plot.draw(figures)


def test_control_other_figures_give_another_picture():
    import plot

    figures = json.loads((BENCH / "figures" / "receiver.json").read_text(encoding="utf-8"))
    drawn = plot.draw(figures)
    for panel in figures.values():
        panel["standalone"][0]["rate"] *= 2
    assert plot.draw(figures) != drawn


def test_the_receivers_table_has_the_committed_figures():
    import receiver

    figures = json.loads((BENCH / "figures" / "receiver.json").read_text(encoding="utf-8"))
    page = (BENCH / "README.md").read_text(encoding="utf-8")
    for measured in figures.values():
        assert f"\n\n{receiver.table(measured)}\n\n" in page
