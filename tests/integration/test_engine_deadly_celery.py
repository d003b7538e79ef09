"""Handlers that end their process, in Celery's workers: pools of processes and of threads.

A worker of threads is one process, and ends with its handler; it is started again here, as systemd does it.
In a pool of processes each has one handler at a time, so that the control is about threads alone.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

import pytest

from support.apps import deliver
from support.celery_workers import Shop, clean_up
from support.deadly import INNOCENTS, Place, kept_up, until_done
from support.deadly_handlers import WAYS
from support.inbox_view import not_called_again

pytestmark = pytest.mark.slow

if not os.environ.get("BILLHOOK_TEST_AMQP_URL") and os.environ.get("BILLHOOK_TEST_NO_SKIPS") != "1":
    # Once for the whole file, and not for each of its tests.
    pytest.skip("no AMQP broker: BILLHOOK_TEST_AMQP_URL is not set", allow_module_level=True)


@contextmanager
def shop_with(folder, url, amqp_url, attempts):
    """A place, and a shop on it with the handlers that end their process."""
    place = Place(folder, url)
    shop = Shop(
        folder, url, amqp_url, {"deadly": True, "lease_seconds": 1, "schedule": [0.1] * (attempts - 1)}
    )
    try:
        yield place, shop
    finally:
        place.inbox.close()
        clean_up(shop)


def store(shop, *keys):
    """As the web process takes them, and rings for them."""
    app = shop.app()
    for key in (*keys, *(f"good-{number}" for number in range(INNOCENTS))):
        assert deliver(app, message_id=key).status_code == 200
    app.extensions["billhook"].close()


def finish(place, shop, pool, **environment):
    place.environ = {**os.environ, **shop.environment, **environment}
    name = ("--hostname", f"{shop.queue}@%h", "--without-gossip", "--without-mingle", "--loglevel", "INFO")
    command = ("celery", "-A", "support.celery_shop:celery", "worker", "--pool", pool, "-c", "4", *name)
    with kept_up(place, *command) as keep_up:
        until_done(place, keep_up)


@pytest.mark.parametrize(
    ("pool", "attempts", "deadly"),
    [pytest.param("prefork", 3, [*WAYS], marks=pytest.mark.long), ("threads", 1, ["late-300"])],
)
def test_neighbours_of_handlers_that_end_their_process_are_all_done(
    tmp_path, amqp_url, pool, attempts, deadly
):
    url = f"sqlite:///{tmp_path / 'billhook.db'}"
    with shop_with(tmp_path, url, amqp_url, attempts) as (place, shop):
        store(shop, *deadly)

        finish(place, shop, pool)

        assert place.dead() == set(deadly)
        assert {place.runs()[f"{way} act"][-1] for way in deadly} == {not_called_again(attempts)}
        assert len(place.noted("ended")) == INNOCENTS


def test_without_a_suspicion_the_neighbours_in_threads_would_be_dead(tmp_path, amqp_url):
    with shop_with(tmp_path, f"sqlite:///{tmp_path / 'billhook.db'}", amqp_url, 1) as (place, shop):
        store(shop, "late-300")

        finish(place, shop, "threads", DISABLE_SUSPECTS="1")

        assert "late-300" in place.dead()
        assert len(place.dead()) > 1
