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


def test_a_server_that_is_not_named_skips_the_test_or_fails_it_and_one_that_is_named_is_used(
    bare, monkeypatch
):
    name = "BILLHOOK_TEST_REDIS_URL"

    with pytest.raises(pytest.skip.Exception, match=rf"^no Redis: {name} is not set$"):
        required(name, "Redis")
    monkeypatch.setitem(STARTED_WITH, "BILLHOOK_TEST_NO_SKIPS", "1")
    with pytest.raises(pytest.fail.Exception, match=f"NO_SKIPS=1, and no Redis: {name}"):
        required(name, "Redis")
    monkeypatch.setitem(STARTED_WITH, name, "redis://here")
    assert required(name, "Redis") == "redis://here"


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
