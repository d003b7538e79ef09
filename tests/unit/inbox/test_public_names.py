"""The names that programs import from `billhook.inbox`: those of the rooms, and nothing beside them."""

from __future__ import annotations

from types import ModuleType

import pytest

from billhook.inbox import actions, conditions, overview
from billhook.inbox.operating import actions as recording
from billhook.inbox.watching import conditions as watched
from billhook.inbox.watching import judgement
from billhook.inbox.watching import overview as figures


@pytest.mark.parametrize(
    ("public", "rooms"),
    [(actions, [recording]), (conditions, [watched, judgement]), (overview, [figures])],
)
def test_a_public_module_has_the_very_objects_of_the_rooms(public: ModuleType, rooms: list[ModuleType]):
    names = [name for name in vars(public) if not name.startswith("__")]

    assert len(names) >= 4
    for name in names:
        assert getattr(public, name) is next(getattr(room, name) for room in rooms if hasattr(room, name))
