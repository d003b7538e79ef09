"""What the suite does without a server: it skips in one line, or fails where everything must be there."""

from __future__ import annotations

import pytest

from support import postgres
from support.postgres import STARTED_WITH, OwnServer, Servers, required


@pytest.fixture
def bare(monkeypatch):
    """Nothing is there, and that is all right."""
    for name in list(STARTED_WITH):
        if name.startswith("BILLHOOK_TEST_"):
            monkeypatch.delitem(STARTED_WITH, name)


def test_a_missing_server_skips_the_test_with_one_line(bare):
    with pytest.raises(pytest.skip.Exception, match=r"^no Redis: BILLHOOK_TEST_REDIS_URL is not set$"):
        required("BILLHOOK_TEST_REDIS_URL", "Redis")


def test_a_missing_server_fails_the_test_with_no_skips(bare, monkeypatch):
    monkeypatch.setitem(STARTED_WITH, "BILLHOOK_TEST_NO_SKIPS", "1")

    with pytest.raises(pytest.fail.Exception, match="NO_SKIPS=1, and no Redis: BILLHOOK_TEST_REDIS_URL"):
        required("BILLHOOK_TEST_REDIS_URL", "Redis")


def test_a_configured_server_is_used(bare, monkeypatch):
    monkeypatch.setitem(STARTED_WITH, "BILLHOOK_TEST_REDIS_URL", "redis://here")

    assert required("BILLHOOK_TEST_REDIS_URL", "Redis") == "redis://here"


def test_a_server_that_does_not_start_is_tried_once(bare, monkeypatch):
    tried = []

    class Broken(OwnServer):
        """A wheel that does not work here."""

        def __init__(self):
            tried.append(1)
            raise OSError("no such platform")

    monkeypatch.setattr(postgres, "OwnServer", Broken)
    servers = Servers()

    for _ in range(2):
        with pytest.raises(pytest.skip.Exception, match=r"^no PostgreSQL: .*no such platform"):
            servers.start()

    assert tried == [1]
