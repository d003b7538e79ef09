"""Who may call the sandbox. Source: spec, "Authentication"; "Endpoints", POST /login; "Errors"."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import time
from contextlib import closing
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from billhook.errors import ConfigError
from billhook.sandbox import Sandbox, SandboxOptions
from support.sandbox import API_TOKEN, START, Answer, Running, check_refused, running

REFUSED = (401, "authentication_error", "authentication_failed")
LIMITED = (429, "rate_limit_error", "rate_limit_exceeded")


def bearer(sandbox: Running, token: str) -> Answer:
    """What a harmless request gets with this access token."""
    return sandbox.send("GET", "/catalogProducts", None, {"Authorization": f"Bearer {token}"})


def part(value: Any) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


def signed(sandbox: Running, algorithm: str = "HS256", digest: str = "sha256", **claims: Any) -> str:
    """An access token made with the sandbox's own key, good but for what is said otherwise."""
    now = int(START.timestamp())
    text = b".".join(
        [
            part({"alg": algorithm, "typ": "JWT"}),
            part({"sub": "sandbox", "iat": now, "exp": now + 3600, **claims}),
        ]
    )
    mac = hmac.new(sandbox.sandbox.jwt_key, text, getattr(hashlib, digest)).digest()
    return (text + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


def raw(sandbox: Running, *headers: tuple[str, bytes]) -> Answer:
    """A request for the products with exactly these headers."""
    parts = urlsplit(sandbox.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
    try:
        connection.putrequest("GET", "/catalogProducts")
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


# --- logging in -----------------------------------------------------------------------------------


def test_a_login_gives_an_access_token_for_an_hour_whatever_bearer_token_comes_with_it(
    sandbox: Running,
) -> None:
    """Source: spec, "Endpoints", POST /login; "Authentication", rule 1."""
    answer = sandbox.send("POST", "/login", {"refreshToken": API_TOKEN}, {"Authorization": "Bearer old"})
    admitted = bearer(sandbox, answer.json["accessToken"])

    assert answer.status == admitted.status == 200
    assert answer.json["expiresIn"] == 3600
    assert answer.json["expiresAt"] == "2026-01-10T13:00:00Z"


BAD_LOGINS: list[tuple[Any, str | None]] = [
    ({}, "refreshToken"),
    ({"refreshToken": None}, "refreshToken"),
    ({"refreshToken": [API_TOKEN]}, "refreshToken"),
    ([API_TOKEN], None),
    (b"{", None),
    (b"\xff", None),
    (b'{"refreshToken":"\\ud800"}', None),
]


def test_a_login_that_is_not_well_formed_gets_400_and_the_token_is_not_repeated(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /login, errors."""
    answers = [sandbox.send("POST", "/login", body, {}) for body, _ in BAD_LOGINS]

    check_refused(answers, [param for _, param in BAD_LOGINS])
    assert [answer.body for answer in answers if API_TOKEN.encode() in answer.body] == []


def test_a_login_with_a_wrong_token_or_client_id_gets_401(sandbox: Running) -> None:
    """Source: spec, "Errors", authentication_failed; "Authentication", rule 1."""
    answers = [
        sandbox.send("POST", "/login", {"refreshToken": token}, {})
        for token in ("", "wrong", API_TOKEN.upper(), f"{API_TOKEN} ", "\x7f", "tökén", "x" * 10_000)
    ]
    other = sandbox.send("POST", "/login", {"refreshToken": API_TOKEN}, {"x-api-key": "other"})

    assert {answer.error() for answer in [*answers, other]} == {REFUSED}
    assert {answer.json["message"] for answer in answers} == {
        "the refreshToken is not the API token that is active: it is another, or was revoked"
    }


# --- the access token -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_moved", [False, True])
def test_an_access_token_ends_after_an_hour_of_the_sandboxs_clock_and_a_login_gives_another(
    sandbox: Running, is_moved: bool
) -> None:
    """Source: spec, "Limits", access token lifetime; "Authentication", rule 4. The clock goes or is moved."""

    def wait(seconds: int) -> None:
        if is_moved:
            sandbox.ok("POST", "/_sandbox/clock", {"advance": f"PT{seconds}S"})
        else:
            sandbox.real.advance(seconds=seconds)

    token = sandbox.login()
    wait(3599)
    before = bearer(sandbox, token)
    wait(1)
    after = bearer(sandbox, token)

    assert (before.status, bearer(sandbox, sandbox.login()).status) == (200, 200)
    assert after.error() == REFUSED
    assert after.headers["WWW-Authenticate"] == "Bearer"


def test_an_access_token_of_another_sandbox_or_client_id_is_refused(sandbox_url: str) -> None:
    """Source: spec, "Authentication", rules 1 and 6."""
    with running(database_url=sandbox_url) as sandbox, running() as stranger:
        token = sandbox.login()
        abroad = bearer(stranger, token)
    with running(database_url=sandbox_url) as sandbox:
        same = bearer(sandbox, token)
    with running(database_url=sandbox_url, client_id="other") as sandbox:
        headers = {"x-api-key": "other", "Authorization": f"Bearer {token}"}
        other = sandbox.send("GET", "/catalogProducts", None, headers)

    assert same.status == 200
    assert abroad.error() == other.error() == REFUSED


FORGED: list[dict[str, Any]] = [
    {"algorithm": "RS256"},
    {"algorithm": "HS512", "digest": "sha512"},
    {"algorithm": "none"},
    {"algorithm": ""},
    {"exp": int(START.timestamp())},
    {"exp": int(START.timestamp()) + 3601},
    {"exp": None},
    {"exp": "soon"},
    {"exp": [1]},
    {"exp": 1e400},
    {"sub": "other"},
    {"sub": None},
    {"sub": ["sandbox"]},
]


NO_TOKENS = (
    "", ".", "..", "...", "a.b.c", "null", "é.é.é", "\x7f", "=" * 5000,
    part({"alg": ["HS256"]}).decode() + ".e30.",
    part("HS256").decode() + ".e30.",
    base64.urlsafe_b64encode(b"[" * 3000).decode().rstrip("=") + ".e30.",
    base64.urlsafe_b64encode(b"\xff").decode().rstrip("=") + ".e30.",
)  # fmt: skip


def test_a_token_that_is_not_exactly_what_was_signed_for_this_client_is_refused(sandbox: Running) -> None:
    """Source: spec, "Authentication", rule 5; "Errors", authentication_failed."""
    good = signed(sandbox)
    head, claims, signature = good.split(".")
    unsigned = part({"alg": "none", "typ": "JWT"}).decode()
    longer = part({"sub": "sandbox", "exp": int(START.timestamp()) + 3000}).decode()
    tokens = [
        f"{unsigned}.{claims}.",
        f"{unsigned}.{claims}.{signature}",
        f"{head}.{claims}.",
        f"{head}.{claims}",
        f"{head}.{longer}.{signature}",
        f"{head}.{claims}.{'A' if signature[0] != 'A' else 'B'}{signature[1:]}",
        f"{head}.{claims}.{signature}.{signature}",
        *NO_TOKENS,
        *(signed(sandbox, **claims) for claims in FORGED),
    ]
    headers = {token: ("Authorization", b"Bearer " + token.encode()) for token in [good, *tokens]}
    answers = {token: raw(sandbox, ("x-api-key", b"sandbox"), each) for token, each in headers.items()}

    assert answers.pop(good).status == 200
    assert {token: answer.error() for token, answer in answers.items()} == dict.fromkeys(tokens, REFUSED)


def test_the_access_token_comes_as_bearer_and_not_otherwise(sandbox: Running) -> None:
    """Source: spec, "Authentication"."""
    forms = ("Basic {}", "{}", "Token {}", "Bearer{}", "Bearer {0}, Bearer {0}")
    token = sandbox.login()
    answers = [
        sandbox.send("GET", "/catalogProducts", None, {"Authorization": form.format(token)}) for form in forms
    ]
    control = sandbox.send("GET", "/catalogProducts", None, {"Authorization": f"bearer {token}"})

    assert [answer.error() for answer in answers] == [REFUSED] * len(forms)
    assert control.status == 200


def test_a_request_without_an_access_token_is_refused_and_does_nothing(sandbox: Running) -> None:
    """Source: spec, "Authentication", rule 1."""
    answers = [
        sandbox.send("POST", path, body, {})
        for path, body in (("/catalogProducts", {"name": "API calls"}), ("/_sandbox/tokens", None))
    ]

    assert [answer.error() for answer in answers] == [REFUSED, REFUSED]
    assert sandbox.ok("GET", "/catalogProducts")["total"] == 0  # by a login with the API token


# --- the client id --------------------------------------------------------------------------------


def test_a_client_id_that_is_missing_wrong_twice_or_not_ascii_is_refused(sandbox: Running) -> None:
    """Source: spec, "Authentication", rule 1."""
    wrong = [[], [b""], [b"other"], [b"Sandbox"], [b"sandbox", b"sandbox"], [b"sandbox,"], [b"\xe9"]]
    authorization = ("Authorization", f"Bearer {sandbox.login()}".encode())
    answers = [raw(sandbox, *(("x-api-key", each) for each in ids), authorization) for ids in wrong]
    control = raw(sandbox, ("x-api-key", b"sandbox"), authorization)

    assert [answer.error() for answer in answers] == [REFUSED] * len(wrong)
    assert control.status == 200


def test_a_client_id_that_no_header_can_hold_is_refused() -> None:
    for client_id in ("", "ä", "my shop", "a\nb", "a\0"):
        with pytest.raises(
            ConfigError, match="the client id must be printable ASCII without spaces, and not empty"
        ):
            SandboxOptions(client_id=client_id)


# --- API tokens -----------------------------------------------------------------------------------


def test_a_new_api_token_revokes_the_previous_one(sandbox: Running) -> None:
    """Source: spec, "Authentication", rules 2 and 3."""
    given = sandbox.login()
    made = sandbox.ok("POST", "/_sandbox/tokens")["refreshToken"]
    within_its_hour = bearer(sandbox, given)
    old = sandbox.send("POST", "/login", {"refreshToken": API_TOKEN}, {})
    new = sandbox.send("POST", "/login", {"refreshToken": made}, {})
    third = sandbox.ok("POST", "/_sandbox/tokens")["refreshToken"]
    second = sandbox.send("POST", "/login", {"refreshToken": made}, {})

    assert new.status == within_its_hour.status == 200
    assert old.error() == second.error() == REFUSED
    assert len({made, third, API_TOKEN}) == 3


def logs_in(sandbox: Sandbox, token: str | None) -> bool:
    given = {"x-api-key": sandbox.client_id}
    answer = sandbox.app().test_client().post("/login", json={"refreshToken": token}, headers=given)
    return answer.status_code == 200


def test_an_api_token_is_issued_on_request_and_shown_once(sandbox_url) -> None:
    """Source: spec, "Authentication", rule 2."""
    options = SandboxOptions(database_url=sandbox_url)
    Sandbox(options).close()  # nobody asked
    with closing(Sandbox(options)) as first:
        token = first.api_token
        assert logs_in(first, token)
        assert first.api_token == token
    with closing(Sandbox(options)) as again:
        assert again.api_token is None
        assert logs_in(again, token)


@pytest.mark.parametrize("new", [False, True])
def test_an_api_token_that_could_not_be_shown_is_not_stored(sandbox_url, *, new: bool) -> None:
    """Source: spec, "Authentication", rule 2."""
    options = SandboxOptions(database_url=sandbox_url)
    shown: list[str | None] = []
    with closing(Sandbox(options)) as sandbox:
        if new:
            shown.append(sandbox.api_token)
        with pytest.raises(BrokenPipeError), sandbox.issue_api_token(new=new) as lost:
            raise BrokenPipeError
        assert not logs_in(sandbox, lost)
        with sandbox.issue_api_token() as token:
            shown.append(token)

        assert [logs_in(sandbox, one) for one in shown] == ([True, False] if new else [True])
        assert (token is None) == new


def test_api_tokens_are_not_in_the_database_in_the_clear(tmp_path) -> None:
    """Source: spec, "Authentication", rule 2."""
    with running(database_url=f"sqlite:///{tmp_path}/sandbox.db") as sandbox:
        made = sandbox.ok("POST", "/_sandbox/tokens")["refreshToken"]
        sandbox.ok("POST", "/catalogProducts", {"name": "a text that is kept"})

    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"a text that is kept" in kept
    assert made.encode() not in kept
    assert API_TOKEN.encode() not in kept


# --- the rate limit -------------------------------------------------------------------------------


def test_requests_above_the_rate_get_429_with_retry_after_by_the_machines_time() -> None:
    """Source: spec, "Limits"; "Errors", rate_limit_exceeded. Those with a wrong client id do not count."""
    with running(rate_limit="3/hour") as sandbox:
        wrong = [sandbox.send("GET", "/invoices", None, {"x-api-key": "other"}).status for _ in range(4)]
        token = sandbox.login()
        within = [bearer(sandbox, token).status for _ in range(2)]
        beyond = bearer(sandbox, token)
        sandbox.sandbox.clock.set_ahead(timedelta(days=1))
        sandbox.real.advance(seconds=86400)
        login = sandbox.send("POST", "/login", {"refreshToken": API_TOKEN}, {})

    assert (wrong, within) == ([401] * 4, [200, 200])
    assert beyond.error() == login.error() == LIMITED
    assert 3000 < int(beyond.headers["Retry-After"]) <= 3600


def test_a_request_after_retry_after_is_answered() -> None:
    """Source: spec, "Errors", rate_limit_exceeded."""
    with running(rate_limit="1/second") as sandbox:
        answers = [sandbox.send("POST", "/login", {"refreshToken": API_TOKEN}, {}) for _ in range(2)]
        deadline = time.monotonic() + 120
        while answers[-1].status == 429 and time.monotonic() < deadline:
            time.sleep(float(answers[-1].headers["Retry-After"]))
            answers.append(sandbox.send("POST", "/login", {"refreshToken": API_TOKEN}, {}))

    assert answers[-1].status == 200
