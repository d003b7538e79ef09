"""A PostgreSQL whose address leads to a hot standby for a while: all goes on when it can be written again."""

from __future__ import annotations

import time

import pytest

from billhook import Handlers
from billhook.errors import InboxUnavailable
from billhook.events import ContractCreated, PingTest, sample
from billhook.extension import get_state
from billhook.inbox import Inbox
from support.apps import deliver
from support.celery_workers import Shop, clean_up, worker
from support.inbox_view import rows
from support.postgres import OwnServer, fresh_database, start_own_server, with_options
from support.processes import until
from support.proxy import Proxy
from support.signing import signed
from support.timeouts import scaled

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers():
    primary = start_own_server()
    standby = OwnServer(primary)
    yield primary, standby
    standby.stop()
    primary.stop()


@pytest.fixture
def address(servers):
    """The cluster's address, which leads to the primary until told otherwise."""
    with fresh_database(servers[0].url) as url:
        proxy = Proxy(url)
        yield proxy
        proxy.close()


def stand_by(servers, address, app):
    """Lead the address to the standby for some seconds, and then to the primary, of which nothing is cut.

    Return when it began to lead to the primary again.
    """
    primary, standby = servers
    address.lead_to(standby.url)
    address.cut()
    until(lambda: sent(app, "refused") == 503)
    with pytest.raises(InboxUnavailable):  # what /readyz asks
        get_state(app).inbox.check_writable()
    time.sleep(4)  # in which the worker, the receiver and the waker connect to the standby
    address.lead_to(primary.url)
    return time.monotonic()


def sent(app, key):
    return deliver(app, headers=signed(message_id=key)).status_code


@pytest.mark.parametrize("attributes", ["read-write", "any"])
def test_after_a_failover_everything_is_handled_without_a_restart(servers, address, running, attributes):
    """`any` lets connections to the standby be made, and live on: they can never write."""
    handlers, handled = Handlers(), []
    handlers.on(PingTest, name="note")(lambda event, delivery: handled.append(delivery.key))
    url = with_options(address.url, "", target_session_attrs=attributes)
    Inbox(url).upgrade()
    app = running(handlers, BILLHOOK_INBOX_URL=url)

    assert sent(app, "before") == 200
    until(lambda: handled == ["before"])
    began = stand_by(servers, address, app)
    until(lambda: sent(app, "after") == 200, 10)
    until(lambda: "after" in handled, 10)

    assert time.monotonic() - began < scaled(10)
    get_state(app).inbox.check_writable()
    assert sent(app, "later") == 200
    until(lambda: "later" in handled, 10)


def test_after_a_failover_celery_handles_what_came_before_and_after(servers, address, redis_url, tmp_path):
    """Retries come due beside the standby: their messages are used up by workers that cannot claim them."""
    url = with_options(address.url, "", target_session_attrs="any")
    Inbox(url).upgrade()
    shop = Shop(tmp_path, url, redis_url, {"schedule": [3]})
    retried = [f"retried-{number}" for number in range(6)]
    app = shop.app()

    def attempts():
        return {(key, attempt) for _, key, attempt, _ in shop.calls()}

    try:
        with worker(shop) as running:
            assert sent(app, "before") == 200
            for key in retried:
                body = sample(ContractCreated).to_json()
                assert deliver(app, body, "ContractCreated", message_id=key).status_code == 200
            until(lambda: attempts() == {("before", 1), *((key, 1) for key in retried)})
            due = "SELECT count(*) FROM billhook.run WHERE state = 'due' AND attempts = 1"
            until(lambda: rows(address.url, due) == [(len(retried),)])
            began = stand_by(servers, address, app)
            until(lambda: sent(app, "after") == 200, 10)
            until(lambda: attempts() >= {("after", 1), *((key, 2) for key in retried)}, 10)

            assert time.monotonic() - began < scaled(10)
            assert running.says("sweep failed")  # the control: it has seen the standby
    finally:
        app.extensions["billhook"].close()
        clean_up(shop)
