"""What copies of an earlier gunicorn.conf.py import."""

from __future__ import annotations

import logging

from billhook.gunicorn_log import InvalidRequestFilter, limit_invalid_requests


def test_an_earlier_configuration_limits_lines_that_strangers_cause(caplog):
    log = logging.getLogger("gunicorn.error")
    before = list(log.filters)
    try:
        limit_invalid_requests()
        limit_invalid_requests()
        added = [each for each in log.filters if isinstance(each, InvalidRequestFilter)]
        log.warning("Invalid request from ip=%s: %s", "10.0.0.1", "SECRET")
        log.warning("Another line")
    finally:
        log.filters[:] = before

    assert len(added) == 1
    assert "SECRET" not in caplog.text
    assert "request refused by gunicorn: InvalidRequest" in caplog.text
    assert "Another line" in caplog.text
