"""The inbox and the rules are compared in random histories: 20 in every run, 150 longer ones with --long."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import billhook
from model import faults
from model.histories import Failed, postgresql, run, shorten, sqlite

SEEDS, STEPS = range(1, 21), 60
LONG_SEEDS, LONG_STEPS = range(1_001, 1_151), 300


SHORTENED = {
    # The newest process dies, and counts as alive again when the clock is set back: what came is left.
    5213: [
        *(
            ("deploy", 2),
            ("put", 302, 2, 1),
            ("put", 306, 2, 1),
            ("roll", 0, 0),
            ("poll", 114),
            ("poll", 399),
        ),
        *(
            ("exhaust", 871, 888),
            ("poll", 394, None, True),
            ("put_batch", 154, 897, 413),
            ("set_clock", -40.0),
        ),
    ],
    # A process that has just started claims a reading, and others have newer handlers.
    3: [
        *(("roll", 831, 601), ("roll", 798, 302), ("put_own", 228, 512, 207), ("poll", 54), ("finish", 1)),
        *(("finish", 0), ("roll", 0, 1), ("poll", 1)),
    ],
    # One without a type is counted, replayed and read.
    15: [
        *(("put", 302, 1, 1), ("put", 302, 1, 1), ("put", 302, 1, 1), ("put_own", 171, 552, 361)),
        *(("put_in_body", 883, 933, 192), ("discard", 329, 160), ("count",), ("put_own", 695, 611, 919)),
        ("replay", 0, 0, 2),
    ],
}
"""What histories have found, by the seed of their handlers: a seed draws other steps when some are added."""


def agree(seed, steps, url=sqlite):
    """Fail with the shortest history that was found, and the line that repeats it."""
    try:
        run(seed, steps, url=url)
    except Failed as failed:
        shortest = shorten(seed, failed.steps, url)
        listed = "".join(f"\n    {step}" for step in shortest.steps)
        pytest.fail(f"{failed}\nshortened to:{listed}\n{shortest.error}", pytrace=False)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_inbox_does_what_the_rules_say(seed):
    agree(seed, STEPS)


@pytest.mark.parametrize(("seed", "steps"), SHORTENED.items())
def test_the_inbox_does_it_in_what_histories_have_found(seed, steps):
    run(seed, 0, steps)


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_an_inbox_on_postgresql_does_it_too(seed, postgres_server):
    agree(seed, STEPS // 2, partial(postgresql, postgres_server.url))


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS[:30])
def test_an_inbox_on_postgresql_does_it_in_long_histories(seed, postgres_server):
    agree(seed, LONG_STEPS, partial(postgresql, postgres_server.url))


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_the_inbox_does_what_the_rules_say_in_long_histories(seed):
    agree(seed, LONG_STEPS)


def test_the_results_of_faults_are_of_faults_that_there_are():
    assert faults.results().keys() <= {faults.line_of(each) for each in faults.FAULTS}


def test_each_fault_is_of_a_line_that_is_there_once():
    source = Path(billhook.__file__).parent

    assert [one for one in faults.FAULTS if (source / one.file).read_text().count(one.old) != 1] == []
