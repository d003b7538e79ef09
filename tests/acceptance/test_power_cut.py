"""The power is cut at each 200: what a disk then has of SQLite's files holds every delivery answered."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.acceptance.disk_model import Cuts, cut_at_each_answer
from support.acceptance.senders import Line, body_of
from support.acceptance.stack import STANDALONE, Stack, stack_on
from support.acceptance.system_calls import needs_strace, recording
from support.processes import together, until

pytestmark = pytest.mark.slow


def send(stack: Stack, each: int, connections: int) -> dict[int, list[str]]:
    """Deliveries over some connections at once, each until it is answered 200; keys by the sender's port."""
    sent: dict[int, list[str]] = {}

    def work(number: int) -> None:
        line = Line(stack.port, 60)
        for count in range(each):
            key = f"msg_{number}_{count}"
            while line.post(key, body_of(number * each + count)).status != 200:
                pass
            assert line.own_port is not None
            sent.setdefault(line.own_port, []).append(key)
        line.close()

    assert together(connections, work) == [None] * connections
    return sent


def record_and_cut(
    folder: Path,
    each: int,
    app: str = STANDALONE,
    *,
    workers: int = 2,
    connections: int = 4,
    inject: str = "",
    **settings: str,
) -> Cuts:
    """What power cuts would have done to a receiver that makes its inbox and takes some deliveries."""
    log, inbox, scratch = folder / "trace.txt", folder / "inbox" / "billhook.db", folder / "after"
    for made in (inbox.parent, scratch):
        made.mkdir()
    with stack_on(folder, f"sqlite:///{inbox}", **settings) as stack:
        wrap = recording(log, *(["-e", f"inject={inject}"] if inject else []))
        web = stack.start_web(app, workers=workers, wrap=wrap)
        sent = send(stack, each, connections)
        os.kill(web.children()[0], signal.SIGTERM)
        until(lambda: web.ended() is not None, 30)
    cuts = cut_at_each_answer(log, inbox, sent, scratch, seed=1)
    log.unlink()
    assert cuts.count == each * connections
    for name, content in cuts.disk.seen().items():  # else it has missed a way to write
        assert (inbox.parent / name).read_bytes() == content
    return cuts


def test_every_delivery_answered_200_survives_a_power_cut(tmp_path, figures, long):
    needs_strace()

    # The handlers run in the same processes: their turns and checkpoints are in the trace too.
    cuts = record_and_cut(tmp_path, each=500 if long else 15, BILLHOOK_ENGINE="thread")

    missing = len(cuts.missing | cuts.missing_by_chance)
    figures.add("rows missing after power cut", missing, cuts.count, 2 * cuts.count, "cuts")
    assert cuts.missing == set()
    assert cuts.missing_by_chance == set()


@pytest.mark.parametrize("synchronous", ["OFF", pytest.param("NORMAL", marks=pytest.mark.long)])
def test_a_receiver_that_does_not_sync_is_caught(tmp_path, synchronous):
    needs_strace()

    cuts = record_and_cut(tmp_path, 10, "faulty_receivers:never_syncs()", ACCEPTANCE_SYNCHRONOUS=synchronous)

    assert len(cuts.missing) == cuts.count
    assert cuts.missing_by_chance


# On one connection the delivery that was refused is the next to come: with others, another's commit may sync
# what its own answer needs. By `when`: a commit and, as the log is closed, its checkpoint; both, and then the
# log as it is taken over; a commit, and then the folder of the new log. strace counts by thread: a start
# has 12 syncs at most, whichever the SQLite library, and the committer as many as there are commits.
@pytest.mark.long
@pytest.mark.parametrize(
    ("connections", "when"),
    [(4, "14..15"), *((1, when) for when in ("14..15", "14..16", "14..19+5", "14..21+7"))],
)
def test_a_delivery_that_was_refused_for_a_failed_sync_and_sent_again_survives_a_power_cut(
    tmp_path, connections, when
):
    needs_strace()

    inject = f"fdatasync,fsync:error=EIO:when={when}"
    cuts = record_and_cut(tmp_path, 14, workers=1, connections=connections, inject=inject)

    assert cuts.missing == set()
    # With others the end of what was refused may be on the disk without its beginning.
    assert connections > 1 or cuts.missing_by_chance == set()
