"""The log's lines about refused deliveries: few, whatever is sent, and with the number of them."""

from __future__ import annotations

import logging
import re

import pytest

from billhook.receiver.rejection_log import RejectionLog


@pytest.fixture
def now():
    return [1_000.0]


@pytest.fixture
def refusals(now, caplog):
    caplog.set_level(logging.INFO)
    return RejectionLog(lambda: now[0])


def lines(caplog):
    return [record.getMessage() for record in caplog.records]


def test_the_first_refusal_is_logged_at_once_and_others_counted_each_second(refusals, now, caplog):
    for _ in range(300):
        refusals.record("eu", "mismatch", logging.WARNING, "refused")
    assert lines(caplog) == ["refused"]

    now[0] += 1
    refusals.record("eu", "mismatch", logging.WARNING, "refused")

    assert lines(caplog) == ["refused", "refused; 300 times in 1 s"]


def test_every_refusal_is_logged_or_counted(refusals, now, caplog):
    """However they come: the lines' numbers add up."""
    sent = 0
    for pause in [0, 0.1, 0.9, 1, 0.5, 0.5, 1.1, 0, 0, 3_600, 0.2]:
        now[0] += pause
        for _ in range(3):
            refusals.record("eu", "mismatch", logging.WARNING, "refused")
            sent += 1
    refusals.flush(all_of_them=True)

    told = sum(int(found[1]) if (found := re.search(r"; (\d+) times", line)) else 1 for line in lines(caplog))
    assert told == sent
    assert len(lines(caplog)) < sent


def test_counted_refusals_are_logged_by_the_next_flush(refusals, now, caplog):
    for _ in range(3):
        refusals.record("eu", "mismatch", logging.WARNING, "refused")
    refusals.flush()
    assert lines(caplog) == ["refused"]

    now[0] += 1.2
    refusals.flush()
    refusals.flush()

    assert lines(caplog) == ["refused", "refused; 2 times in 1 s"]


def test_each_cause_and_source_is_logged_separately(refusals, caplog):
    for source, cause in [("eu", "mismatch"), ("eu", "missing"), ("us", "mismatch"), ("us", "mismatch")]:
        refusals.record(source, cause, logging.WARNING, f"{source} {cause}")

    assert lines(caplog) == ["eu mismatch", "eu missing", "us mismatch"]


def test_the_latest_reason_and_level_are_logged(refusals, now, caplog):
    for text in ("the disk is full", "the disk is full", "the disk is gone"):
        refusals.record("eu", "storage", logging.ERROR, text)
    now[0] += 1
    refusals.flush()

    assert lines(caplog) == ["the disk is full", "the disk is gone; 2 times in 1 s"]
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


def test_flush_without_refusals_reads_no_clock():
    def nobody() -> float:
        raise AssertionError("the time was asked")

    RejectionLog(nobody).flush()
