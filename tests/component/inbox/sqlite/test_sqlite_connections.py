"""The connections of a process to a SQLite file are closed, whatever they are in use for."""

from __future__ import annotations

import pytest
from sqlalchemy.pool import QueuePool

from billhook.inbox.sqlite.driver import _ClosingPool
from support.inbox_view import open_inbox


@pytest.fixture
def database(tmp_path):
    return open_inbox(tmp_path / "billhook.db").database


def read_while_closed(database):
    """Read, have another use close all connections meanwhile, and return the driver's connection."""
    with database.read() as connection:
        driver = connection.connection.driver_connection
        database.close()
    return driver


def test_a_connection_in_use_when_all_are_closed_is_closed_after_its_use(database):
    driver = read_while_closed(database)

    # Of the driver's module, which may be another one than Python's.
    with pytest.raises(Exception, match="closed database"):
        driver.execute("SELECT 1")
    with database.read() as connection:  # and the next use opens them again
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1


def test_the_pool_of_sqlalchemy_leaves_it_open(database, monkeypatch):
    """The control."""
    monkeypatch.setattr(_ClosingPool, "dispose", QueuePool.dispose)

    driver = read_while_closed(database)

    assert driver.execute("SELECT 1").fetchone() == (1,)
    driver.close()
