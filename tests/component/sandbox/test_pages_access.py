"""Who gets to the sandbox's pages: the login, the session, and forms that only its own pages send."""

from __future__ import annotations

import re

from sqlalchemy import select

from billhook.sandbox.pages.app import SESSION_SECONDS
from billhook.sandbox.storage.tables import setting
from support.sandbox import Running, running
from support.sandbox_pages import ORIGIN, PagesBrowser, rules

PUBLIC = {"/pages/login", "/pages/api"}


def at_login(location: str) -> bool:
    return location.partition("?")[0] == "/pages/login"


# --- the login --------------------------------------------------------------------------------------


def test_the_root_leads_to_the_login_and_the_login_to_the_overview(sandbox: Running) -> None:
    browser = PagesBrowser.of(sandbox)
    root = browser.client.get("/")
    start = browser.get("/")
    logged_in = browser.log_in()
    page = browser.get("/")

    assert (root.status_code, root.location) == (302, "/pages/")
    assert (start.status_code, start.location) == (303, "/pages/login")
    assert (logged_in.status_code, logged_in.location) == (303, "/pages/")
    assert page.status_code == 200
    assert "2026-01-10 12:00:00" in page.text


def test_wrong_credentials_are_refused_and_never_said_which(sandbox: Running) -> None:
    for client_id, api_token in (
        ("sandbox", "wrong"), ("other", "api-token-of-the-tests-7f3a"), ("sandbox", ""), ("", ""),
        ("é", "ü\0"),
    ):  # fmt: skip
        browser = PagesBrowser.of(sandbox)
        refused = browser.log_in(client_id, api_token)

        assert refused.status_code in (400, 401)
        assert "\0" in api_token or "missing, wrong or revoked" in refused.text
        assert at_login(browser.get("/").location)


def test_attempts_to_log_in_are_limited_as_requests_of_the_api_are() -> None:
    with running(rate_limit="3/minute") as sandbox:
        browser = PagesBrowser.of(sandbox)
        wrong = [browser.log_in(api_token="wrong").status_code for _ in range(3)]
        right = browser.log_in()
        called = sandbox.call("GET", "/contracts").status

    assert wrong == [401, 401, 401]
    assert right.status_code == 429
    assert 0 < int(right.headers["Retry-After"]) <= 60
    assert "too many requests" in right.text
    assert called == 200


def test_the_login_leads_to_the_page_that_was_asked_for_and_to_no_other_site(sandbox: Running) -> None:
    asked = PagesBrowser.of(sandbox).get("/timeline?type=PingTest")
    own = "/pages/timeline?type=PingTest"
    elsewhere = (
        "https://evil.example", "//evil.example", "/pages/\\evil", "/pages//evil", "/other", "\u202e",
    )  # fmt: skip
    found = {to: PagesBrowser.of(sandbox).log_in(to=to).location for to in (own, *elsewhere)}

    assert asked.location == "/pages/login?to=/pages/timeline?type%3DPingTest"
    assert found == {own: own, **dict.fromkeys(elsewhere, "/pages/")}


def test_a_body_that_is_too_long_for_a_login_is_refused(sandbox: Running) -> None:
    refused = PagesBrowser.of(sandbox).log_in(api_token="x" * 20_000)

    assert refused.status_code == 413


def login_token(sandbox: Running) -> str:
    """The token of a printed address."""
    address = sandbox.sandbox.login_address(sandbox.url)
    assert address.startswith(f"{sandbox.url}/pages/login?token=")
    return address.partition("token=")[2]


def test_the_printed_address_logs_in_once_by_a_button_and_only_the_newest(sandbox: Running) -> None:
    old, token = login_token(sandbox), login_token(sandbox)
    browser = PagesBrowser.of(sandbox)
    shown = [browser.get(f"/login?token={token}") for _ in range(2)]  # looking uses nothing up
    found: dict[str, list[tuple[int, bool]]] = {}
    for text in (old, " ", token[:-1], "é\u202e", token, token):
        browser = PagesBrowser.of(sandbox)
        browser.get("/login")
        answer = browser.post("/login", token=text)
        found.setdefault(text, []).append((answer.status_code, at_login(browser.get("/").location or "")))

    assert [page.status_code for page in shown] == [200, 200]
    assert 'name="api_token"' not in shown[0].text
    assert found.pop(token) == [(303, False), (401, True)]
    assert list(found.values()) == [[(401, True)]] * 4
    assert "has been used" in answer.text


def test_tokens_of_addresses_are_stored_as_digests_and_their_attempts_are_limited() -> None:
    with running(rate_limit="2/minute") as sandbox:
        token, browser = login_token(sandbox), PagesBrowser.of(sandbox)
        with sandbox.sandbox.service.transaction(writes=False) as tx:
            stored = tx.connection.execute(select(setting.c.value)).scalars().all()
        browser.get("/login")
        answers = [browser.post("/login", token=text).status_code for text in ("a", "b", token)]

    assert [value for value in stored if token in value] == []
    assert answers == [401, 401, 429]


# --- the session ------------------------------------------------------------------------------------


def test_the_sessions_cookie_is_out_of_reach_of_scripts_other_sites_and_the_api(sandbox: Running) -> None:
    [cookie] = [
        one
        for one in PagesBrowser.of(sandbox).log_in().headers.getlist("Set-Cookie")
        if re.match(r"billhook_sandbox_[0-9a-f]{8}=", one)
    ]

    assert {"HttpOnly", "SameSite=Strict", "Path=/pages/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie.split("; ")  # it is served without TLS here


def test_a_session_ends_after_a_working_day_of_the_machines_time(sandbox: Running) -> None:
    browser = PagesBrowser.logged_in(sandbox)
    moved = browser.run("POST /_sandbox/clock", advance="P1Y")
    sandbox.real.advance(seconds=SESSION_SECONDS - 1)
    before = browser.get("/").status_code
    sandbox.real.advance(seconds=1)

    assert moved.startswith("The clock is at 2027-01-10T12:00:00Z")
    assert before == 200
    assert at_login(browser.get("/").location)


def test_a_session_ends_with_its_api_token_and_by_logging_out(sandbox: Running) -> None:
    browser, other = PagesBrowser.logged_in(sandbox), PagesBrowser.logged_in(sandbox)
    said = browser.act("/logout")
    after = browser.get("/"), other.get("/")
    sandbox.ok("POST", "/_sandbox/tokens")

    assert said == "You are logged out."
    assert (at_login(after[0].location), after[1].status_code) == (True, 200)
    assert at_login(other.get("/").location)


def test_a_session_of_another_sandbox_or_a_forged_one_is_none() -> None:
    with running() as sandbox, running() as other:
        browser, stranger = PagesBrowser.logged_in(sandbox), PagesBrowser.of(other)
        [cookie] = [one for one in browser.client._cookies.values() if one.key.startswith("billhook_sandbox")]
        stranger.client.set_cookie(cookie.key, cookie.value, path="/pages/")
        elsewhere = stranger.get("/")
        browser.client.set_cookie(cookie.key, cookie.value[:-4] + "AAAA", path="/pages/")
        forged = browser.get("/")

    assert at_login(elsewhere.location)
    assert at_login(forged.location)


# --- every page and every action --------------------------------------------------------------------


def test_no_page_is_shown_without_a_session(sandbox: Running) -> None:
    browser = PagesBrowser.of(sandbox)
    found = {rule: browser.client.get(rule) for rule in [*rules("GET"), "/pages/nothing/here"]}

    assert len(found) > 10
    shown = {rule for rule, response in found.items() if response.status_code != 303}
    assert shown == PUBLIC
    assert all(at_login(found[rule].location) for rule in found.keys() - PUBLIC)


def test_no_action_is_taken_by_get_or_without_a_session(sandbox: Running) -> None:
    browser, stranger = PagesBrowser.logged_in(sandbox), PagesBrowser.of(sandbox)
    stranger.get("/login")
    actions = [rule for rule in rules("POST") if rule not in PUBLIC]
    by_get = {rule: browser.client.get(rule).status_code for rule in actions}
    sent = [stranger.post(rule.removeprefix("/pages"), advance="P1D") for rule in actions]

    assert len(actions) > 4
    # Some addresses have a page as well: getting that page changes nothing, as the next test shows.
    assert {by_get[rule] for rule in actions if rule not in rules("GET")} <= {404, 405}
    assert all(response.status_code == 303 and at_login(response.location) for response in sent)


def test_every_action_is_refused_unless_a_page_of_the_sandbox_sent_it(sandbox: Running) -> None:
    browser = PagesBrowser.logged_in(sandbox)
    own, of_another = browser.token, PagesBrowser.logged_in(sandbox).token
    good = {"Origin": ORIGIN}
    wrong = {
        "no token": ("", good),
        "a token of another visitor": (of_another, good),
        "another origin": (own, {"Origin": "http://evil.example"}),
        "no origin": (own, {}),
        "another site": (own, {**good, "Sec-Fetch-Site": "cross-site"}),
    }
    refused = {}
    for name, (token, headers) in wrong.items():
        browser.token, browser.headers = token, headers
        for rule in rules("POST"):
            answer = browser.post(rule.removeprefix("/pages"), advance="P1D")
            refused[name, rule] = answer.status_code
    unmoved = sandbox.sandbox.clock.ahead
    browser.token, browser.headers = own, good
    control = browser.run("POST /_sandbox/clock", advance="P1D")

    assert refused == dict.fromkeys(refused, 403)
    assert unmoved.total_seconds() == 0
    assert control.startswith("The clock is at 2026-01-11")


def test_every_page_forbids_scripts_frames_and_other_origins(sandbox: Running) -> None:
    browser = PagesBrowser.logged_in(sandbox)
    pages = [
        browser.client.get(rule) for rule in [*rules("GET"), "/pages/nothing", "/pages/assets/style.css"]
    ]

    for page in pages:
        assert page.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'self'")
        assert page.headers["X-Frame-Options"] == "DENY"
        assert "<script" not in page.text
        assert not re.search(r"""(?:src|href|action)=["'](?:https?:)?//""", page.text)
