"""The standalone app's dashboard: users and passwords of a file."""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Iterator

import pytest
from flask import Flask
from werkzeug.exceptions import Unauthorized

from billhook.dashboard.password_file import (
    MAX_WRONG_TRIES,
    WRONG_TRIES,
    WRONG_TRIES_SECONDS,
    _parse,
    _SignIn,
)
from billhook.errors import ConfigError
from billhook.extension import get_state
from billhook.standalone import create_app
from support.dashboard import ORIGIN
from support.signing import SECRET, signed
from support.templates import new_inbox

PASSWORD = "a long: enough password"


@pytest.fixture
def make(tmp_path, monkeypatch) -> Iterator:
    monkeypatch.chdir(tmp_path)
    made: list[Flask] = []

    def create(text: str | None, mode: int = 0o600) -> Flask:
        environ = {"BILLHOOK_SECRETS": SECRET, "BILLHOOK_ENGINE": "worker"}
        new_inbox(f"sqlite:///{tmp_path / 'billhook.db'}")
        if text is not None:
            file = tmp_path / "dashboard.txt"
            file.write_text(text)
            file.chmod(mode)
            environ["BILLHOOK_DASHBOARD"] = str(file)
        made.append(create_app(environ))
        return made[-1]

    yield create
    for app in made:
        get_state(app).close()


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def test_without_the_option_there_is_no_dashboard(make):
    assert make(None).test_client().get("/billhook/").status_code == 404


def test_only_a_user_of_the_file_with_the_right_password_looks(make, monkeypatch):
    for bound in ("WRONG_TRIES", "MAX_WRONG_TRIES"):
        monkeypatch.setattr(f"billhook.dashboard.password_file.{bound}", 100)  # each is compared
    client = make(f"# staff\n\nalice:{PASSWORD}\nread-only bob:another password!\n").test_client()
    strangers = [
        *(basic("alice", "another password!"), basic("bob", PASSWORD), basic("alice", ""), {}),
        *(basic("", PASSWORD), basic("mallory", PASSWORD)),
        *({"Authorization": "Basic !!"}, {"Authorization": f"Bearer {PASSWORD}"}),
    ]

    for headers in strangers:
        for path in ("/billhook/handlers", "/billhook/assets/style.css"):
            answer = client.get(path, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == 'Basic realm="billhook dashboard", charset=UTF-8'
            assert "Handlers" not in answer.text
    for headers in (basic("alice", PASSWORD), basic("bob", "another password!")):
        for path in ("/billhook/handlers", "/billhook/assets/style.css"):
            assert client.get(path, headers=headers).status_code == 200


def test_a_read_only_user_may_not_act_and_the_other_may(make):
    app = make(f"alice:{PASSWORD}\nread-only bob:another password!\n")
    client = app.test_client()
    client.post("/webhooks/billing", data=b"{}", headers=signed())
    statuses = []
    for name, password in (("alice", PASSWORD), ("bob", "another password!")):
        login = basic(name, password)
        token = re.search(
            r'csrf_token" value="([^"]+)', client.get("/billhook/deliveries", headers=login).text
        )
        data = {"csrf_token": token[1] if token else "", "reason": "done"}
        answer = client.post("/billhook/deliveries/1/discard", data=data, headers={**login, **ORIGIN})
        statuses.append(answer.status_code)

    assert statuses == [303, 403]
    assert (
        "billhook deliveries list"
        in client.get("/billhook/deliveries", headers=basic("alice", PASSWORD)).text
    )


def test_a_wrong_password_is_logged_without_what_was_sent(make, caplog):
    caplog.set_level(logging.INFO)
    client = make(f"alice:{PASSWORD}\n").test_client()

    client.get("/billhook/", headers=basic("mallory", "guessed-password"))

    assert "sign-in to the dashboard refused" in caplog.text
    assert "mallory" not in caplog.text
    assert "guessed" not in caplog.text


def test_a_file_that_is_none_is_refused_without_its_passwords(make):
    for text, told in (
        ("", "names no user"),
        ("# none\n", "names no user"),
        ("alice\n", "line 1: write USER:PASSWORD"),
        (":" + PASSWORD, "line 1: write USER:PASSWORD"),
        ("read only bob:" + PASSWORD, "a name without spaces"),
        ("\nalice:too short", "line 2: the password of alice has fewer than 12 characters"),
        (f"alice:{PASSWORD}\nread-only alice:{PASSWORD}", "names a user twice"),
    ):
        with pytest.raises(ConfigError, match=told) as caught:
            make(text)
        assert PASSWORD not in str(caught.value)
        assert "too short" not in str(caught.value)


def test_a_file_that_others_may_write_is_refused_and_one_that_is_missing(make, monkeypatch, tmp_path):
    with pytest.raises(ConfigError, match="others may write it; run: chmod 600"):
        make(f"alice:{PASSWORD}\n", mode=0o622)
    (tmp_path / "dashboard.txt").unlink()
    environ = {"BILLHOOK_SECRETS": SECRET, "BILLHOOK_DASHBOARD": str(tmp_path / "dashboard.txt")}
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        create_app(environ)


def test_all_processes_sign_forms_with_the_same_key_which_no_password_is_part_of(make):
    first, second = make(f"alice:{PASSWORD}\n"), make(f"alice:{PASSWORD}\n")
    other = make("alice:another password!\n")

    assert first.secret_key == second.secret_key != other.secret_key
    assert len(first.secret_key) == 64


@pytest.mark.parametrize(
    "sent", ["Basic \xff", "Basic " + base64.b64encode(b"\xff:\xff").decode(), "Basic =", "Digest a=\xff"]
)
def test_a_credential_that_cannot_be_read_is_refused_and_not_logged(make, caplog, sent):
    client = make(f"alice:{PASSWORD}").test_client()

    response = client.get("/billhook/", headers={"Authorization": sent})

    assert response.status_code in (400, 401)
    assert response.headers["Content-Security-Policy"]
    assert caplog.text == ""


class SignIn:
    """Tries to sign in with a clock of its own."""

    def __init__(self, password: str = PASSWORD, others: int = 1) -> None:
        lines = [f"alice:{password}", f"bob:{password}"]
        lines += [f"bob{number}:{password}" for number in range(2, others + 1)]
        users = tuple(_parse("users.txt", lines))
        self.now = 100.0
        self._sign_in = _SignIn(users, lambda: self.now)
        self._app = Flask("shop")

    def is_let_in(self, password: str, address: str = "192.0.2.1", name: str = "alice") -> bool:
        client = {"REMOTE_ADDR": address}
        with self._app.test_request_context(headers=basic(name, password), environ_overrides=client):
            try:
                return self._sign_in.user().name == name
            except Unauthorized:
                return False


ALICE, BOB = ("192.0.2.1", "alice"), ("192.0.2.1", "bob")
ELSEWHERE = ("198.51.100.1", "alice")
# The half of them: alice and bob have equal parts.
MANY = [(f"192.0.2.{number}", "alice") for number in range(MAX_WRONG_TRIES // 2)]
TRIES = {
    "one client, fewer": ([ALICE] * (WRONG_TRIES - 1), [ALICE], []),
    "one client": ([ALICE] * MAX_WRONG_TRIES, [BOB, ELSEWHERE], [ALICE]),
    "one client, as IPv6": ([("::ffff:192.0.2.1", "alice")] * 9, [("::ffff:192.0.2.2", "alice")], [ALICE]),
    "one network": (
        [(f"2001:db8::{number:x}", "alice") for number in range(60)],
        [("2001:db8:0:1::1", "alice")],
        [("2001:db8::1", "alice")],
    ),
    "one link": ([(f"fe80::{number:x}%eth0", "alice") for number in range(60)], [ALICE], []),
    "many clients, fewer": (MANY[1:], [ELSEWHERE], []),
    "many clients": (MANY, [BOB], [ELSEWHERE]),
    "names of no user": ([("192.0.2.1", f"admin{number}") for number in range(300)], [ALICE, BOB], []),
}
"""Who tries wrong passwords; who is let in with the right one then, and who only a second later."""


@pytest.mark.parametrize("case", TRIES)
def test_wrong_passwords_hold_up_the_client_and_the_user_that_they_are_of_for_a_second(case, caplog):
    sign_in = SignIn()
    tried, let_in, held_up = TRIES[case]

    assert not any(sign_in.is_let_in("wrong", *who) for who in tried)

    assert all(sign_in.is_let_in(PASSWORD, *who) for who in let_in)
    assert not any(sign_in.is_let_in(PASSWORD, *who) for who in held_up)
    assert caplog.text.count("sign-in to the dashboard refused") == 1
    sign_in.now += WRONG_TRIES_SECONDS
    assert all(sign_in.is_let_in(PASSWORD, *who) for who in held_up)


def test_of_however_many_users_one_client_keeps_none_out():
    sign_in = SignIn(others=60)

    assert not any(sign_in.is_let_in("wrong", *ALICE) for _ in range(MAX_WRONG_TRIES))

    assert sign_in.is_let_in(PASSWORD, *ELSEWHERE)


@pytest.mark.parametrize(
    ("password", "is_let_in"),
    [
        ("k3J9xfL2pQ8vR5tZ7mW4nB6c", True),
        ("k3J9xfL2pQ8vR5tZ7mW4nB6", False),
        ("passwordpasswordpassword1", False),
        ("Abcdefghi1Abcdefghi1Abcd", False),
        ("k3j9xfl2pq8vr5tz7mw4nb6c", False),
    ],
)
def test_a_password_that_cannot_be_guessed_is_let_in_however_many_wrong_ones_come(password, is_let_in):
    sign_in = SignIn(password)

    assert not any(sign_in.is_let_in("wrong", *who) for who in MANY)

    assert sign_in.is_let_in(password, *ALICE) is is_let_in


@pytest.mark.parametrize(
    "path", ["/billhook", "/billhook//deliveries", "//billhook/", "/billhook/deliveries/"]
)
def test_no_path_is_redirected_to_the_host_of_the_request(make, path):
    client = make(f"alice:{PASSWORD}").test_client()

    response = client.get(path, headers={"Host": "evil.example"})

    assert response.status_code in (401, 404)
    assert "evil.example" not in f"{response.headers}{response.text}"


def test_who_logs_out_is_refused_with_the_password_that_was_right(make):
    client = make(f"alice:{PASSWORD}\n").test_client()
    page = client.get("/billhook/", headers=basic("alice", PASSWORD)).text

    out = client.get("/billhook/log-out", headers=basic("alice", PASSWORD))

    assert '<a class="way" href="/billhook/log-out">Log out</a>' in page
    assert (out.status_code, out.text) == (401, "You are logged out.\n")
    assert out.headers["WWW-Authenticate"].lower().startswith("basic realm=")
