"""The steps of a history: each is a name and some numbers, chosen at random, and taken on both sides."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from model.driver import Driver

Step = tuple[Any, ...]
TICKS = (0.0, 0.2, 1.0, 4.0, 11.0, 20.0, 31.0, 61.0, 400.0, 3_600.0, 90_000.0)
OUTCOMES = (
    ("ok", None),
    ("ok", None),
    ("ok", None),
    ("fail", None),
    ("fail", None),
    ("discard", None),
    ("retry", 2.0),
    ("put_off", 5.0),
)
ENDINGS = (("fail", None), ("ok", None), ("retry", 2.0), ("put_off", 2.0))
_NUMBERS = {
    **dict.fromkeys(("put", "put_batch", "replay", "take_over", "postpone", "resend"), 3),
    **dict.fromkeys(("roll", "exhaust", "give_first_runs", "replay_as", "discard", "erase"), 2),
    "count": 0,
}
"""How many numbers a step has, where it is not one."""
OF_ONE = ("tick", "poll", "finish", "end")
"""Steps in which one process goes on, and others do nothing."""
SCENES = 0.05
ADDED = 0.15
"""How many of the steps are chosen by a stream of their own: those of ADDED_WEIGHTS, and scenes with them."""
ADDED_WEIGHTS = {"put_own": 6, "put_in_body": 6, "put_again": 2, "look": 2, "change_issue": 4, "scene": 4}
WEIGHTS: dict[str, int] = {
    "put": 20,
    "put_batch": 6,
    "tick": 14,
    "set_clock": 1,
    "poll": 34,
    "fault": 4,
    "die": 2,
    "stop": 1,
    "restart": 2,
    "deploy": 1,
    "roll": 2,
    "start_beside": 2,
    "end": 30,
    "end_late": 4,
    "overtake": 2,
    "exhaust": 2,
    "meddle": 2,
    "replay": 5,
    "replay_quarantined": 1,
    "replay_as": 1,
    "resend": 2,
    "give_first_runs": 2,
    "take_over": 2,
    "discard": 3,
    "postpone": 3,
    "hold": 1,
    "unhold": 2,
    "erase": 2,
    "prune": 1,
    "pause": 2,
    "resume": 3,
    "count": 1,
}


def _status(chance: random.Random, invoice: int) -> Step:
    """Put a new delivery about one invoice, which ordered handlers get."""
    return ("put", 302, 2 * chance.randrange(5) + chance.randrange(2), 7 * chance.randrange(2) * 10 + invoice)


def _scene(chance: random.Random) -> list[Step]:
    """Return some steps in a row that meet rarely: what happens between a claim and its result."""
    one, other = chance.sample(range(2), 2)
    invoice, outcome = chance.randrange(2), chance.choice(ENDINGS)
    begin: list[Step] = [_status(chance, invoice), _status(chance, 1 - invoice), ("poll", one)]
    lost: list[Step] = [("tick", 31.0), ("poll", other)]
    ended: list[Step] = [("end", chance.randrange(9), *outcome), ("poll", one)]
    late: list[Step] = [("end_late", chance.randrange(9), *outcome), ("poll", one)]
    died: list[Step] = [("poll", one, None, True), ("restart", one), *lost]
    numbers = [chance.randrange(1_000) for _ in range(3)]
    return chance.choice(
        (
            [*begin, *lost, *late],
            [*begin, *lost, ("tick", 6.0), ("poll", other), *late, ("end", 0, *outcome), ("poll", other)],
            [*begin, _status(chance, invoice), ("poll", other), *ended, ("tick", 4.0), ("poll", other)],
            [*begin, ("erase", numbers[0], 2), *ended],
            [*begin, ("discard", numbers[0], 2), *ended],
            [*begin, *lost, ("replay", *numbers), *late],
            # Put off after it was taken for lost, and the late result says otherwise; then that ends.
            [*begin, *lost, ("postpone", numbers[0], 2, 2), *late, ("postpone", numbers[0], 5, 2)],
            [*begin, ("put", 302, 0, invoice), ("postpone", numbers[0], 2, 2), *ended, ("tick", 45.0)],
            [("start_beside", one), *begin, ("poll", 2), *lost, ("poll", 2), *late, ("poll", 2)],
            [*begin, ("hold", one), ("poll", one), *ended, ("poll", other), ("unhold", 0), ("poll", one)],
            [*begin, *died, ("tick", 6.0), ("poll", other), *died, ("tick", 6.0), ("poll", other)],
            [*begin, *died, ("tick", 6.0), ("poll", other), ("tick", 20.0), ("poll", other), *lost, *begin],
            [
                ("poll", one),
                *(("put", 302 + 3 * each, 0, invoice) for each in range(3)),
                ("poll", one, "lost"),
            ],
            [*begin, ("stop", one), ("tick", 31.0), ("poll", other), ("end", 0, *outcome), ("poll", other)],
            *_rarest(chance, begin, one, other),
        )
    )


def _rarest(chance: random.Random, begin: list[Step], one: int, other: int) -> list[list[Step]]:
    """Return scenes that need several things at once; each begins with what the worker has begun ended."""
    quiet: list[Step] = [("finish", each) for each in (one, other, one, other)]
    same, invoice = ("put", 302, 0, chance.randrange(2)), chance.randrange(2)
    same_as: Step = ("put", 302, 1, 1)
    many = [_status(chance, invoice) for _ in range(3)]
    others: list[Step] = [("put", number, 2, 1) for number in (303, 302, 306, 302)]
    added: list[Step] = [("deploy", 2), *many, *others, ("poll", 0), ("poll", 1), ("roll", 0, 0), ("poll", 1)]
    late: Step = ("end_late", chance.randrange(9), *chance.choice((("fail", None), ("ok", None))))
    taken: list[Step] = [("tick", 31.0), ("poll", other), ("finish", other), ("tick", 6.0), ("poll", other)]
    return [
        # The old result of a run that another worker has under way.
        [*quiet, *begin, *taken, late, ("poll", one), ("finish", other)],
        # One of a stopped worker, or of the release before, while a newer one of its order comes.
        [*quiet, *many[:2], ("poll", one), ("stop", one), *many, ("poll", 0), ("poll", 0)],
        [*quiet, *many, ("poll", one), ("deploy", 1), *many, ("poll", one), ("poll", other)],
        # A twin of a twin, after the window of the first.
        [("tick", 61.0), *(step for _ in range(3) for step in (same, ("poll", one), ("tick", 31.0)))],
        # One that is planned late is a twin of the first of two that are within its window.
        [
            ("tick", 61.0),
            same_as,
            ("poll", one),
            ("tick", 31.0),
            ("put", 302, 11, 1),
            ("tick", 31.0),
            same_as,
            ("poll", one),
            ("replay_quarantined", 0),
            ("poll", one),
            ("poll", other),
        ],
        # A suspect that takes longer than a lease, beside others; then the worker dies.
        [*quiet, *many[:2], ("poll", one), ("lose_late", -1)],
        # One key with several types that have no model.
        [("put", number, 11, 1) for number in (29, 58, 87, 58)],
        # Keys of what was not timed are kept longer than others.
        [("put", 11, 2, 1), ("put", 302, 2, 1), *quiet, ("tick", 700_000.0), ("poll", one), ("prune", 1.0)],
        # A name that is of another handler now is paused: an older release has it as a former one.
        [
            *quiet,
            ("roll", 0, 1),
            ("poll", 1),
            *others,
            *others,
            ("poll", 1),
            ("roll", 0, 2),
            ("poll", 1),
            ("pause_some", chance.randrange(9)),
            ("finish", 0),
            ("poll", 0),
        ],
        # What failed, while a newer one of its order came.
        [*quiet, many[0], ("reach_newest", one), many[1], ("poll", other), ("end_newest", one, "fail", None)],
        [*quiet, many[0], ("reach_newest", one), many[1], ("poll", one), ("end_newest", one, "retry", 2.0)],
        [*quiet, many[0], ("reach_newest", one), ("overtake", one, "fail", None), ("finish", other)],
        # A rename, while processes of older code go on and a handler is paused.
        [("pause_some", chance.randrange(9)), *others, ("roll", one, 1), ("poll", 0), ("poll", 1)],
        # A handler that a release has added gets what it has missed, or what another had.
        [*added, ("give_first_runs", one, chance.randrange(9)), ("poll", one), ("poll", other)],
        [
            *added,
            ("take_over", one, chance.randrange(9), chance.randrange(9)),
            ("poll", one),
            ("poll", other),
        ],
        # Runs under two names, of which one is paused.
        [*quiet, ("pause_some", chance.randrange(9)), ("deploy", 1), *others, ("poll", one), ("poll", other)],
        [*others, ("poll", one), ("deploy", 1), ("tick", 31.0), ("finish", one), ("finish", other)],
    ]


def _added(chance: random.Random, driver: Driver) -> Step:
    """Return a step with a user's own type, a type in the body, or an issue."""
    name = chance.choices([*ADDED_WEIGHTS], [*ADDED_WEIGHTS.values()])[0]
    if name == "scene":
        first, *driver.scene = _added_scene(chance)
        return first
    numbers = [chance.randrange(1_000) for _ in range(3)]
    return (name, *numbers[: {"look": 0}.get(name, 3)])


def _added_scene(chance: random.Random) -> list[Step]:
    """Return some steps in a row about readings, or about an issue."""
    one, other = chance.sample(range(2), 2)
    kind, outcome = chance.randrange(2), chance.choice((("retry", 1.0), ("fail", None), ("ok", None)))
    owns: list[Step] = [("put_own", kind + 3 * each, 1, 1) for each in range(2)]
    bodies: list[Step] = [("put_in_body", 2 + 6 * each, 2 + kind, 2) for each in range(2)]
    ended: list[Step] = [("end", 0, *outcome), ("end", 0, "ok", None), ("poll", one)]
    lost: list[Step] = [("tick", 31.0), ("poll", other), ("tick", 6.0), ("poll", other)]
    quiet: list[Step] = [("finish", each) for each in (one, other)]
    died: list[Step] = [("poll", one, None, True), ("restart", one)]
    taken_back: list[Step] = [("poll", one), ("replay_quarantined", 0), *quiet, *quiet]
    same, status = ("put", 302, 1, 1), _status(chance, chance.randrange(2))
    many: list[Step] = [("put", number, 2, 1) for number in (303, 306, 309, 312)]
    failed: list[Step] = [
        ("put", 303, 2, 1),
        ("poll", one),
        ("end", 0, "fail", None),
        ("poll", one),
        ("look",),
    ]
    return chance.choice(
        (
            [*quiet, *owns, ("poll", one), *ended, ("tick", 31.0), *quiet],
            [*quiet, *owns, ("poll", one), *lost, ("end_late", 0, *outcome), ("poll", one), *quiet],
            [*quiet, *owns, *died, *lost, *died, *lost, *quiet],
            # Read by a process of a release that is old by the time it writes what it has read.
            [
                *quiet,
                ("roll", other, 0),
                *owns,
                ("poll", 0),
                ("end", 0, "ok", None),
                ("roll", 1, 1),
                ("poll", 1),
            ],
            [
                *owns,
                *bodies,
                ("roll", 0, 1),
                ("poll", 1),
                *owns,
                ("poll", 0),
                ("roll", 0, 2),
                ("poll", 0),
                ("poll", 1),
            ],
            # A type gets its class: what has come before is replayed.
            [("deploy", 0), ("put_own", 1, 1, 1), *quiet, ("deploy", 1), ("replay", 0, 0, 2), *quiet],
            [("deploy", 2), *bodies, ("discard", 0, 1), ("poll", one), ("replay", 0, 0, 2), *quiet],
            [*owns, ("poll", one), ("discard", 0, 2), ("replay", 0, 0, 2), *ended, *quiet],
            # One that is planned late is a twin of the first of two that are within its window.
            [
                *(("deploy", 0), ("tick", 61.0), same, ("read_all",), ("tick", 31.0), same, ("set_aside",)),
                *(("tick", 31.0), same, ("read_all",), ("take_back",), ("read_all",)),
            ],
            # Runs of an order wait, and with the next release only the newest counts.
            [
                *(*quiet, ("deploy", 0), *([status] * 3), ("poll", one), ("deploy", 1), *([status] * 2)),
                *(("poll", one), ("deploy", 2), *([status] * 2), *quiet),
            ],
            # A former name of an older release is that of another handler now, which is paused.
            [
                *(*quiet, ("roll", 0, 1), ("poll", 1), *many, ("poll", 1), ("roll", 0, 2), ("poll", 1)),
                *(("pause_former", kind), ("finish", 0), ("poll", 0), ("resume_all",)),
            ],
            # A suspect that takes longer than a lease, beside others, and dies with its worker.
            [*quiet, status, ("poll", one), ("lose_late", -1)],
            [*failed, ("change_issue", -1, 1, 0), *failed, ("tick", 3_600.0), *quiet, ("look",)],
            [
                *(*quiet, *failed, ("change_issue", -1, 3, 1), *failed, *failed),
                *(*quiet, ("tick", 3_600.0), ("look",)),
            ],
            # While a type is being read a handler is given what it has missed; then its class fails.
            [*quiet, *owns, ("poll", one), ("give_first_runs", one, -1), ("exhaust", -1, kind), *quiet],
            # A contradiction is handled after the first.
            [("put_in_body", 2, 2 + kind, 2), *quiet, ("put_again", 302, 2 + kind, 1), *taken_back],
            # The newest code hangs, and a clock is set back: what is left to it is left for a minute.
            [
                *(*quiet, ("roll", 0, 1), ("poll", 1), *many, status, ("poll", 0), ("set_clock", -40.0)),
                *(("finish", 0), ("tick", 31.0), ("finish", 0), ("tick", 31.0), ("finish", 0)),
            ],
        )
    )


def choose(chance: random.Random, driver: Driver) -> Step:
    """Choose the next step: by weight, or the next of a scene that was begun."""
    if driver.scene:
        return driver.scene.pop(0)
    if driver.more.random() < ADDED:
        return _added(driver.more, driver)
    if chance.random() < SCENES:
        driver.scene += _scene(chance)
    name = chance.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
    numbers = [chance.randrange(1_000) for _ in range(3)]
    chosen: dict[str, Step] = {
        "tick": ("tick", chance.choice(TICKS[:8] if chance.random() < 0.85 else TICKS)),
        "set_clock": ("set_clock", chance.choice((-5.0, -40.0, 40.0))),
        "fault": ("poll", numbers[0], chance.choice(("refused", "lost"))),
        "die": ("poll", numbers[0], chance.choice(("refused", "lost", None)), True),
        "end": ("end", numbers[0], *chance.choice(OUTCOMES)),
        "end_late": ("end_late", numbers[0], *chance.choice(OUTCOMES)),
        "overtake": ("overtake", numbers[0], *chance.choice(OUTCOMES)),
        "meddle": ("meddle", *numbers[:2], *chance.choice(OUTCOMES)),
        "prune": ("prune", chance.choice((0.0, 1.0, 30.0))),
    }
    return chosen.get(name) or (name, *numbers[: _NUMBERS.get(name, 1)])


def take(driver: Driver, step: Step) -> None:
    """Take one step, on both sides."""
    name, *arguments = step
    if name not in OF_ONE:
        driver.alone = None
    method: Callable[..., None] = getattr(driver, name)
    if name == "poll" and len(arguments) == 3:
        method(*arguments[:2], dies=arguments[2])
    else:
        method(*arguments)
    if name not in OF_ONE:  # it may have polled, and done more after that
        driver.alone = None
