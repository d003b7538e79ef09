"""Pages: headers, escaping, and what a form needs before its view is called."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from markupsafe import escape

from billhook.pages.pages import Visitor

FAILED = "This page failed"
ORIGIN = {"Origin": "http://localhost"}


def token_of(response) -> str:
    return re.search(r'name="csrf_token" value="([^"]+)"', response.text)[1]


def send(site, token: str | None = None, headers=ORIGIN, **more):
    data = {"value": "v"} if token is None else {"value": "v", "csrf_token": token}
    return site.client.post("/pages/change", data=data, headers=headers, **more)


# --- pages ----------------------------------------------------------------------------------------


def test_a_page_forbids_every_script_frame_and_foreign_origin(site):
    response = site().client.get("/pages/")

    assert response.headers["Content-Security-Policy"].split("; ") == [
        "default-src 'none'",
        "style-src 'self'",
        "img-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ]
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Referrer-Policy"] == "same-origin"


def test_a_live_page_runs_its_own_script_and_no_other(site):
    client = site(live=True).client

    page, missing = client.get("/pages/"), client.get("/pages/assets/none")
    (script,) = re.findall(r'<script src="([^"]+)" defer></script>', page.text)
    policy = page.headers["Content-Security-Policy"].split("; ")

    assert policy[0] == "default-src 'none'"
    assert policy[-2:] == ["script-src 'self'", "connect-src 'self'"]
    assert client.get(script).content_type == "text/javascript; charset=utf-8"
    assert "script" not in missing.headers["Content-Security-Policy"]
    assert "<script" not in missing.text
    assert "<script" not in site().client.get("/pages/").text


def test_text_is_escaped_and_what_cannot_be_seen_is_written_out(site):
    response = site(text='<script>alert(1)</script>\u202etxt\x00"').client.get("/pages/")

    assert "<script" not in response.text
    assert "<p>&lt;script&gt;alert(1)&lt;/script&gt;\\u202etxt\\x00&#34;</p>" in response.text
    assert '<span class="invisible">\\u202e</span>txt<span class="invisible">\\x00</span>' in response.text
    assert "\u202e" not in response.text


def test_the_style_sheet_and_the_icon_are_served_and_nothing_else(site):
    client = site().client
    page = client.get("/pages/").text

    addresses = re.findall(r'(?:href|src)="(/pages/assets/[^"]+)"', page)

    assert [client.get(each).status_code for each in addresses] == [200, 200]
    assert [client.get(each).content_type.split(";")[0] for each in addresses] == [
        "text/css",
        "image/svg+xml",
    ]
    assert "immutable" in client.get(addresses[0]).headers["Cache-Control"]
    assert client.get("/pages/assets/pages.py").status_code == 404
    assert client.get("/pages/assets/..%2fpages.py").status_code == 404


def test_a_visitor_who_is_not_known_sees_neither_page_nor_style_sheet(site):
    made = site(text="a secret of the app")
    made.visitor = None

    refused = [made.client.get(path) for path in ("/pages/", "/pages/assets/style.css")]

    assert [each.status_code for each in refused] == [401, 401]
    assert all("a secret" not in each.text and "List" not in each.text for each in refused)
    assert refused[0].headers["Content-Security-Policy"].startswith("default-src 'none'")


# --- forms ----------------------------------------------------------------------------------------


def test_a_form_of_the_page_is_taken_and_the_next_page_says_so_once(site):
    made = site()

    response = send(made, token_of(made.client.get("/pages/")))

    assert (response.status_code, response.location, made.changes) == (303, "/pages/", ["v"])
    assert "It is changed" in made.client.get("/pages/").text
    assert "It is changed" not in made.client.get("/pages/").text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost.evil.example"},
        {"Origin": "http://localhost:81"},
        {"Origin": "http://["},
        {"Origin": "ftp://localhost"},
        {"Sec-Fetch-Site": "same-origin"},
        {**ORIGIN, "Sec-Fetch-Site": "same-site"},
        {**ORIGIN, "Sec-Fetch-Site": "cross-site"},
        {**ORIGIN, "Sec-Fetch-Site": "none"},
    ],
)
def test_a_form_from_elsewhere_is_refused_though_its_token_is_good(site, headers):
    made = site()
    token = token_of(made.client.get("/pages/"))

    refused = send(made, token, headers)

    assert refused.status_code == 403
    assert "not sent from a page of this site" in refused.text
    assert str(escape(f"its Origin is {headers.get('Origin', 'none')}, and")) in refused.text
    assert "Host is localhost." in refused.text
    assert made.changes == []
    assert send(made, token).status_code == 303  # the control: the token was good


@pytest.mark.parametrize("origin", ["https://shop.example", "http://shop.example"])
def test_the_origin_is_compared_with_the_host_that_a_proxy_passed_on(site, origin):
    made = site()
    token = token_of(made.client.get("/pages/", base_url="http://shop.example"))

    sent = send(made, token, {"Origin": origin}, base_url="http://shop.example")

    assert sent.status_code == 303


def test_a_form_without_a_token_of_this_site_is_refused(site):
    made = site()
    token = token_of(made.client.get("/pages/"))

    refused = [send(made, sent) for sent in (None, "", "x", "WyJhbGljZSIsIm4iXQ.aR.x")]
    made.key = "l" * 32
    refused.append(send(made, token))

    assert [(each.status_code, "has no token of this site" in each.text) for each in refused] == [
        (403, True)
    ] * 5
    assert made.changes == []


def test_a_token_is_of_one_visitor_in_one_browser(site):
    made = site()
    token = token_of(made.client.get("/pages/"))
    made.visitor = Visitor("mallory", may_act=True)

    as_another = send(made, token)
    made.visitor = Visitor("alice", may_act=True)
    made.client = made.app.test_client()
    in_another_browser = send(made, token)

    assert [as_another.status_code, in_another_browser.status_code] == [403, 403]
    assert "made for another visitor" in as_another.text
    assert made.changes == []


@pytest.mark.parametrize(("hours", "status"), [(7.9, 303), (8.1, 403)])
def test_a_token_is_good_for_a_working_day(site, monkeypatch, hours, status):
    from itsdangerous import TimestampSigner

    made = site()
    token = token_of(made.client.get("/pages/"))
    later = TimestampSigner("k").get_timestamp() + int(timedelta(hours=hours).total_seconds())
    monkeypatch.setattr(TimestampSigner, "get_timestamp", lambda self: later)

    assert send(made, token).status_code == status


def test_a_visitor_who_may_only_look_gets_no_form_and_may_send_none(site):
    acting = site()
    token = token_of(acting.client.get("/pages/"))
    acting.visitor = Visitor("alice", may_act=False)

    page, refused = acting.client.get("/pages/"), send(acting, token)

    assert "<form" not in page.text
    assert "read-only" in page.text
    assert (refused.status_code, acting.changes) == (403, [])


def test_a_refusal_is_logged_with_the_visitor_and_one_line(site, caplog):
    made = site(name="al\nice")

    send(made, "x")

    (record,) = [each for each in caplog.records if each.name == "billhook.pages"]
    assert record.getMessage() == (
        "refused POST /pages/change by al\\nice: "
        "The form has no token of this site. Load its page again, and send it then."
    )


def test_a_notice_that_was_not_written_here_is_not_shown(site):
    made = site()
    made.client.set_cookie("site_pages_notice", "WyJmb3JnZWQiLCJnb29kIl0.aR.x", path="/pages/")

    assert "forged" not in made.client.get("/pages/").text


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["the view", "the template", "who asks", "the error page too"])
def test_a_mistake_of_a_page_is_503_with_one_traceback_a_minute(site, monkeypatch, caplog, place):
    def fail(*_, **__):
        raise LookupError("a mistake, seen in the log alone")

    monkeypatch.setattr("billhook.pages.pages.RAISE_AGAIN", False)
    made, now = site(), [1000.0]
    pages = made.pages
    monkeypatch.setattr(pages._failures.log, "monotonic", lambda: now[0])
    if place == "the view":
        made.app.view_functions["site_pages.list"] = fail
    elif place == "who asks":
        monkeypatch.setattr(pages, "_identify", fail)
    else:
        monkeypatch.setitem(pages._templates.filters, "shown", fail)
        if place == "the error page too":
            monkeypatch.setattr(pages, "render", fail)

    answers = []
    for moment in (0, 1, 59, 60, 61):
        now[0] = 1000.0 + moment
        answers.append(made.client.get("/pages/"))

    assert [answer.status_code for answer in answers] == [503] * 5
    assert all(FAILED in answer.text and "mistake" not in answer.text for answer in answers)
    assert "default-src 'none'" in answers[0].headers["Content-Security-Policy"]
    assert [getattr(record, "count", 1) for record in caplog.records] == [1, 3]
    assert all(record.exc_info[0] is LookupError for record in caplog.records)


def test_in_tests_a_mistake_of_a_page_is_raised(site):
    made = site()
    made.app.testing = True
    made.app.view_functions["site_pages.list"] = lambda: 1 / 0

    with pytest.raises(ZeroDivisionError):
        made.client.get("/pages/")


class NotLoggedIn(Exception):
    """As an app raises to send a visitor to its login."""


def test_an_error_that_the_app_handles_is_the_apps(site, monkeypatch, caplog):
    made = site()
    made.app.register_error_handler(NotLoggedIn, lambda error: ("log in first", 302, {"Location": "/login"}))

    def refuse():
        raise NotLoggedIn

    monkeypatch.setattr(made.pages, "_identify", refuse)
    answer = made.client.get("/pages/")

    assert (answer.status_code, answer.headers["Location"], caplog.records) == (302, "/login", [])
