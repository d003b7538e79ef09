"""Who may look, who may act, and what every action needs before it does anything."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime

import pytest
from flask import abort, redirect
from flask_wtf.csrf import CSRFProtect

from billhook import Billhook
from billhook.dashboard import Dashboard
from billhook.errors import ConfigError
from billhook.extension import get_state
from billhook.inbox import WorkerRecord
from billhook.inbox.operating.actions import list_actions
from support.apps import deliver
from support.dashboard import ORIGIN, PAGES, Site
from support.signing import APPROVED

ACTIONS = {
    "deliveries/replay": {"id": "1"},
    "deliveries/replay/confirmed": {"id": "1"},
    "deliveries/1/replay": {},
    "deliveries/1/resend": {"handler": "shop.book", "body": APPROVED.decode()},
    "deliveries/1/postpone": {"until": "2h"},
    "deliveries/1/discard": {"reason": "done by hand"},
    "deliveries/1/erase": {"discard": "1"},
    "failures/<issue_id>/replay": {},
    "failures/<issue_id>/ack": {"why": "ticket 7"},
    "failures/<issue_id>/resolve": {},
    "failures/<issue_id>/snooze": {"duration": "2h"},
    "workers/hold": {"owner": "w"},
    "workers/resume": {"owner": "w"},
    "handlers/pause": {"handler": "shop.book"},
    "handlers/resume": {"handler": "shop.book"},
}


@pytest.fixture
def failing(site):
    """A site with a delivery whose handler failed, and what may not change in it."""

    def make(**more):
        made = site(**more)
        made.broken.append(KeyError("no ledger"))
        made.deliver()
        now = datetime.now(UTC)
        made.inbox.record_worker(WorkerRecord("w", "worker", 1, now, host="web-1", pid=7), now)
        return made

    return make


def state_of(made) -> object:
    from billhook.inbox.reading.deliveries import details

    return details(made.inbox, [1]), made.inbox.paused_handlers(), list_actions(made.inbox, 10)


def path_of(made, action: str) -> str:
    return action.replace("<issue_id>", made.issues()[0].id)


# --- looking --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("may_look", "told"),
    [
        (None, "not mounted without may_look"),
        (lambda one, two: True, "take no argument, or the request"),
        (True, "are functions, got bool"),
    ],
)
def test_without_a_permission_to_look_there_is_no_dashboard(plain_app, may_look, told):
    app = plain_app()

    with pytest.raises(ConfigError, match=told):
        Dashboard(may_look=may_look).init_app(app)

    assert app.test_client().get("/billhook/").status_code == 404


def test_only_true_and_a_name_let_a_visitor_look(site, caplog):
    visitor = {"is": True}
    made = site(may_look=lambda: visitor["is"])
    made.deliver()

    for answer in (False, None, "", 0, 1, object(), [], "alice@", True):
        visitor["is"] = answer
        statuses = {made.get(path).status_code for path in PAGES[1:]}
        assert statuses == ({200} if answer is True or answer == "alice@" else {403})
    assert "returned a object, which is refused: return True or a name" in caplog.text


def test_may_look_may_send_visitors_elsewhere(site):
    made = site(may_look=lambda: redirect("/login"))

    assert (made.get("deliveries").status_code, made.get("deliveries").location) == (302, "/login")
    assert "InvoiceApproved" not in made.get("deliveries").text


def test_may_look_may_raise_and_may_take_the_request(site):
    made = site(may_look=lambda request: request.headers.get("X-Staff") == "yes" or abort(401))

    assert made.get("deliveries").status_code == 401
    assert made.get("deliveries", headers={"X-Staff": "yes"}).status_code == 200


def test_a_second_dashboard_of_an_app_is_refused(plain_app):
    app = plain_app()
    Dashboard(may_look=lambda: True).init_app(app)

    with pytest.raises(ConfigError, match="has a dashboard already"):
        Dashboard(may_look=lambda: True).init_app(app, url_prefix="/other")


# --- acting ---------------------------------------------------------------------------------------


def test_the_list_of_actions_is_complete(site):
    rules = site().app.url_map.iter_rules()

    posts = {
        rule.rule
        for rule in rules
        if rule.endpoint.startswith("billhook_dashboard") and "POST" in rule.methods
    }

    verbs = "<any(ack, resolve, snooze):verb>"
    assert posts == {
        "/billhook/" + re.sub("(ack|resolve|snooze)$", verbs, path.replace("1", "<int:delivery_id>"))
        for path in ACTIONS
    }


@pytest.mark.parametrize(
    "how", ["get", "no token", "no origin", "another origin", "may not act", "may not look"]
)
def test_an_action_is_refused_and_changes_nothing(failing, how):
    allowed = {"look": True, "act": True}
    made = failing(may_look=lambda: allowed["look"], may_act=lambda: allowed["act"])
    token, before = {} if how == "no token" else {"csrf_token": made.token()}, state_of(made)
    paths = {action: path_of(made, action) for action in ACTIONS}
    headers = {"no origin": {}, "another origin": {"Origin": "https://evil.example"}}.get(how, ORIGIN)
    allowed |= {"look": how != "may not look", "act": how != "may not act"}

    statuses = {}
    for action, fields in ACTIONS.items():
        if how == "get":
            response = made.get(paths[action], query_string=fields | token, headers=headers)
        else:
            response = made.client.post(f"/billhook/{paths[action]}", data=fields | token, headers=headers)
        statuses[action] = response.status_code

    assert statuses == dict.fromkeys(ACTIONS, 405 if how == "get" else 403)
    assert state_of(made) == before


@pytest.mark.parametrize("action", ACTIONS)
def test_control_the_same_form_with_all_of_that_is_taken(failing, action):
    made = failing()
    before = state_of(made)

    response = made.post(path_of(made, action), **ACTIONS[action])

    assert response.status_code == (200 if action == "deliveries/replay" else 303)
    # It only counts; it was not paused or held.
    if action not in ("deliveries/replay", "handlers/resume", "workers/resume"):
        assert state_of(made) != before


def test_without_may_act_pages_have_no_button(failing):
    answers = [lambda: False, lambda: None, lambda: abort(403), lambda: redirect("/")]
    made, without = failing(may_act=lambda: answers[0]()), failing(may_act=None)

    while answers:
        for one in (made, without):
            pages = [one.get(path).text for path in PAGES[1:]]
            assert all('method="post"' not in page for page in pages)
            assert "read-only" in pages[0]
        del answers[0]


def test_an_action_is_a_row_and_a_line_of_the_log_with_the_visitors_name(failing, caplog):
    made = failing(may_look=lambda: True, may_act=lambda: "Ève\n")
    caplog.set_level(logging.INFO, "billhook.actions")

    made.post("deliveries/1/discard", reason="the customer cus_1 is gone")

    (row,) = list_actions(made.inbox, 10)
    assert (row.who, row.what, row.which, row.deliveries) == ("Ève\\n", "discard", "1", 1)
    assert "discard by Ève\\n: 1 (1 deliveries)" in caplog.text
    assert "cus_1" not in caplog.text


def test_forms_work_beside_the_apps_own_csrf_protection(plain_app):
    app = plain_app(SECRET_KEY="not-a-secret")
    app.post("/order")(lambda: "ordered")
    CSRFProtect(app)
    Billhook(app)
    Dashboard(may_look=lambda: True, may_act=lambda: True).init_app(app)
    deliver(app)
    made = Site(app, [])

    assert made.post("deliveries/1/discard", reason="done").status_code == 303
    assert app.test_client().post("/order").status_code == 400


def test_an_app_without_a_secret_key_has_one_for_its_forms(plain_app):
    app = plain_app()
    Billhook(app)
    Dashboard(may_look=lambda: True, may_act=lambda: True).init_app(app, url_prefix="billhook/")
    deliver(app)

    assert app.secret_key is None
    assert Site(app, []).post("deliveries/1/discard", reason="done").status_code == 303


def test_storage_that_fails_is_a_page_that_says_so(site):
    made = site()
    get_state(made.app).inbox.close()
    made.inbox.database.path.write_bytes(b"no database" * 1000)

    response = made.get("deliveries")

    assert response.status_code == 503
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_pages_lead_back_to_the_app_and_out(app_with):
    def links(app) -> list[tuple[str, str]]:
        page = app.test_client().get("/billhook/").text
        return re.findall(r'class="way" href="([^"]+)">([^<]+)<', page)

    bare, with_root, given = (app_with() for _ in range(3))
    with_root.add_url_rule("/", "home", lambda: "the shop")
    Dashboard(may_look=lambda: True).init_app(bare)
    Dashboard(may_look=lambda: True).init_app(with_root)
    Dashboard(may_look=lambda: True, app_url="/shop", log_out_url=lambda: "/out").init_app(given)

    assert links(bare) == []
    assert links(with_root) == [("/", "To the app")]
    assert links(given) == [("/shop", "To the app"), ("/out", "Log out")]
