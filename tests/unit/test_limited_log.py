"""Log lines about what strangers can cause: few, whatever is sent, and with its number."""

from __future__ import annotations

import logging
import re

import pytest

from billhook.logs import LimitedLog


@pytest.fixture
def now():
    return [1_000.0]


@pytest.fixture
def limited(now, caplog):
    caplog.set_level(logging.INFO)
    return LimitedLog(logging.getLogger("billhook.test"), 1.0, lambda: now[0])


def refuse(limited, text="refused", kind="mismatch", level=logging.WARNING, **more):
    limited.log(kind, level, text, **more)


def test_the_first_record_is_logged_at_once_and_later_ones_counted_each_second(limited, now, caplog):
    for _ in range(300):
        refuse(limited)
    assert caplog.messages == ["refused"]

    now[0] += 1
    refuse(limited, cause="mismatch")

    assert caplog.messages == ["refused", "refused; 300 times in 1 s"]
    assert (caplog.records[1].count, caplog.records[1].cause) == (300, "mismatch")


def test_every_record_is_logged_or_counted(limited, now, caplog):
    """However they come: the lines' numbers add up."""
    sent = 0
    for pause in [0, 0.1, 0.9, 1, 0.5, 0.5, 1.1, 0, 0, 3_600, 0.2]:
        now[0] += pause
        for _ in range(3):
            refuse(limited)
            sent += 1
    limited.flush(all_of_them=True)

    told = sum(
        int(found[1]) if (found := re.search(r"; (\d+) times", line)) else 1 for line in caplog.messages
    )
    assert told == sent
    assert len(caplog.messages) < sent


def test_counted_records_are_logged_by_the_next_flush(limited, now, caplog):
    for _ in range(3):
        refuse(limited)
    limited.flush()
    assert caplog.messages == ["refused"]

    now[0] += 1.2
    limited.flush()
    limited.flush()

    assert caplog.messages == ["refused", "refused; 2 times in 1 s"]


def test_each_kind_is_logged_separately(limited, caplog):
    for kind in [("eu", "mismatch"), ("eu", "missing"), ("us", "mismatch"), ("us", "mismatch")]:
        refuse(limited, " ".join(kind), kind)

    assert caplog.messages == ["eu mismatch", "eu missing", "us mismatch"]


def test_the_latest_text_level_and_traceback_are_logged(limited, now, caplog):
    for text in ("the disk is full", "the disk is full", "the disk is gone"):
        refuse(limited, text, level=logging.ERROR, error=OSError(text))
    now[0] += 1
    refuse(limited, "the disk is gone", level=logging.ERROR, error=LookupError("last"))

    assert caplog.messages == ["the disk is full", "the disk is gone; 3 times in 1 s"]
    assert [record.exc_info[0] for record in caplog.records] == [OSError, LookupError]
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


def test_a_flush_without_records_reads_no_clock():
    def nobody() -> float:
        raise AssertionError("the time was asked")

    LimitedLog(logging.getLogger(), 1.0, nobody).flush()
