"""When a suspect starts, by the table of seconds of billhook.engines.suspects: a lease of 30 s."""

from __future__ import annotations

import pytest

from billhook.engines.suspects import ClaimMode, SuspectPolicy
from billhook.inbox import Lease

ORDINARY, NOTHING, A_SUSPECT = ClaimMode.ORDINARY, ClaimMode.NOTHING, ClaimMode.A_SUSPECT
RUN, SUSPECT = Lease(1, 1), Lease(2, 1)


class Policy(SuspectPolicy):
    def __init__(self, threads: int = 4) -> None:
        self.now = 0.0
        super().__init__(30, threads, monotonic=lambda: self.now)

    def mode(self, at: float, *started: Lease, suspect: bool = True, ordinary: bool = True) -> ClaimMode:
        self.now = at
        return self.next_mode(frozenset(started), suspect_due=suspect, ordinary_due=ordinary)


@pytest.fixture
def policy() -> Policy:
    return Policy()


def test_suspects_and_ordinary_runs_take_turns(policy):
    assert [policy.mode(at, RUN) for at in (0, 9.9)] == [ORDINARY] * 2
    assert policy.seconds_to_change() == pytest.approx(0.1)
    assert [policy.mode(at, RUN) for at in (10, 11.9)] == [NOTHING] * 2
    assert policy.blocks_ordinary(frozenset())
    assert policy.seconds_to_change() == pytest.approx(28.1)
    assert policy.mode(12) is A_SUSPECT
    policy.started(SUSPECT)
    assert policy.seconds_to_change() == 30
    assert policy.mode(15, SUSPECT) is NOTHING
    assert policy.mode(16) is A_SUSPECT
    policy.started(SUSPECT)
    assert [policy.mode(at) for at in (22, 22.1, 33.9)] == [ORDINARY] * 3
    assert policy.mode(34) is A_SUSPECT


def test_an_idle_worker_takes_a_suspect_at_once(policy):
    assert policy.mode(0, suspect=False, ordinary=False) is ORDINARY
    assert policy.mode(0, RUN, ordinary=False) is ORDINARY
    assert policy.mode(0, ordinary=False) is A_SUSPECT
    assert not policy.running
    policy.started(SUSPECT)
    assert policy.running
    assert policy.active
    assert not policy.blocks_ordinary(frozenset())
    assert policy.blocks_ordinary(frozenset({SUSPECT}))


def test_ordinary_runs_wait_no_longer_than_the_lease_for_a_suspect(policy):
    policy.mode(0, ordinary=False)
    policy.started(SUSPECT)

    assert policy.mode(29.9, SUSPECT, suspect=False) is NOTHING
    assert policy.mode(30, SUSPECT, suspect=False) is ORDINARY
    assert (policy.overlong, policy.running, policy.active) == ({SUSPECT}, False, True)
    assert policy.mode(31, suspect=False) is ORDINARY
    assert (policy.overlong, policy.active) == (set(), False)
    assert policy.seconds_to_change() is None


def test_a_suspect_waits_no_longer_than_the_lease_for_ordinary_runs(policy):
    for at in (0, 10):
        policy.mode(at, RUN)

    assert policy.mode(39.9, RUN) is NOTHING
    assert policy.mode(40, RUN) is A_SUSPECT
    assert policy.overlong == {RUN}
    policy.started(SUSPECT)
    assert [policy.mode(at, RUN) for at in (51, 111, 121)] == [ORDINARY, ORDINARY, A_SUSPECT]  # and not again


def test_suspects_and_other_runs_share_the_time_under_load(policy):
    modes = []
    for at in range(120):
        modes.append(policy.mode(at))
        if modes[-1] is A_SUSPECT:
            policy.started(SUSPECT)

    assert modes[:10] == [ORDINARY] * 10
    assert all(0.35 < modes.count(mode) / len(modes) < 0.65 for mode in (ORDINARY, A_SUSPECT))


def test_with_every_thread_in_an_overlong_attempt_no_suspect_is_claimed():
    policy = Policy(threads=1)
    for at in (0, 10):
        policy.mode(at, RUN)

    assert [policy.mode(at, RUN) for at in (40, 41)] == [A_SUSPECT, ORDINARY]


@pytest.mark.parametrize("gone", [True, False], ids=["not due any more", "claimed by another worker"])
def test_ordinary_runs_go_on_when_the_suspect_is_gone(policy, gone):
    assert [policy.mode(at, RUN) for at in (0, 10)] == [ORDINARY, NOTHING]
    policy.now = 12
    if gone:
        assert policy.mode(12, RUN, suspect=False) is ORDINARY
    else:
        policy.started(None)

    assert not policy.blocks_ordinary(frozenset())
    assert [policy.mode(at, RUN) for at in (13, 22.9, 23)] == [ORDINARY, ORDINARY, NOTHING]
