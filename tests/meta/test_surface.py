"""What users build on is written down: whoever takes something of it away has to say so."""

from __future__ import annotations

import difflib
import importlib.util
from pathlib import Path


def load():
    """The script beside this file."""
    spec = importlib.util.spec_from_file_location("surface", Path(__file__).with_name("surface.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_surface_is_the_one_that_is_written_down():
    surface = load()

    written, found = surface.FILE.read_text().splitlines(), surface.surface().splitlines()

    assert list(difflib.unified_diff(written, found, "surface.txt", "the code", n=0, lineterm="")) == [], (
        "python tests/meta/surface.py --write"
    )
