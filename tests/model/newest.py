"""Which of the runs of an order are superseded: the newest alone is needed of those that wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from model.records import Run

ALL, BY_ARRIVAL, BY_EVENT = range(3)
"""What a run's handler needs: all of an order, the last to arrive, or the one whose event is the newest."""


def superseded(runs: Sequence[Run], newest: int) -> Iterator[tuple[Run, str]]:
    """Yield those that wait and need not be handled, with the reason; all of an order, as they arrived."""
    left = [each for each in runs if each.state in ("waiting", "due")]
    if newest == BY_ARRIVAL and left:
        last = [each for each in runs if each.unfinished][-1]
        yield from ((run, f"superseded by delivery {last.delivery.id}") for run in left if run is not last)
    if newest == BY_EVENT:
        # One that is running may still fail: what is older waits for its end.
        handled = [each for each in runs if each.state == "succeeded" and each.newest == BY_EVENT]
        for run in [*left]:
            newer = [each for each in handled if is_newer(each, run)]
            if newer:
                left.remove(run)
                last = newer[-1] if run.newest_value is None else max(newer, key=_by_event)
                yield run, f"superseded by delivery {last.delivery.id}, which is newer and has been handled"
        if left:
            last = max(left, key=_by_event)
            # One that does not say how new it is came later than all before it.
            last = next(
                (each for each in left[::-1] if each.newest_value is None and is_newer(each, last)), last
            )
            why = f"superseded by delivery {last.delivery.id}, which is newer"
            yield from ((run, why) for run in left if run is not last)


def is_newer(one: Run, other: Run) -> bool:
    """Return whether the event says so; if the two are equal, or one does not say, whether it came later."""
    if None not in (one.newest_value, other.newest_value) and one.newest_value != other.newest_value:
        return _by_event(one) > _by_event(other)
    return one.delivery.id > other.delivery.id


def _by_event(run: Run) -> tuple[bool, object, int]:
    return run.newest_value is not None, run.newest_value, run.delivery.id
