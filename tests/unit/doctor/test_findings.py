"""Findings of `billhook doctor` about facts that no test can bring about, each beside facts without it."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from billhook import gunicorn_conf
from billhook.doctor.checks import clock_text, retention_text, secret_files_text, workers_text
from billhook.doctor.configuration import gunicorn_findings, read_gunicorn_file
from billhook.doctor.deliveries import clock_findings, payload_findings
from billhook.inbox import StoredDelivery
from billhook.inbox.postgres.facts import OpenTransaction, PostgresFacts, is_local
from billhook.inbox.sqlite.facts import SqliteFacts, file_system_of
from billhook.settings import OPTIONS

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
GIB = 1024**3
GOOD_SQLITE = SqliteFacts(
    path=Path("/srv/billhook.db"),
    version=(3, 51, 3),
    library="pysqlite3",
    journal_mode="wal",
    synchronous=2,
    fullfsync=True,
    free_bytes=50 * GIB,
    file_bytes=GIB,
    file_system="ext4",
    lax_files={},
)
GOOD_POSTGRES = PostgresFacts(
    place="postgresql://billing@db/billing",
    version=15,
    fsync=True,
    full_page_writes=True,
    autovacuum=True,
    superuser=False,
    local=False,
    encrypted=True,
    sslmode="verify-full",
)


def codes(findings) -> list[tuple[str, str]]:
    found = list(findings)
    assert all(each.what and each.why and each.remedy for each in found)
    return [(each.level, each.code) for each in found]


OUR_OWN = {name: value for name, value in vars(gunicorn_conf).items() if not name.startswith("_")}


def of_sqlite(**changes):
    return codes(replace(GOOD_SQLITE, **changes).problems(2, 1, "darwin"))


def of_postgres(**changes):
    return codes(replace(GOOD_POSTGRES, **changes).problems(2, 1))


def of_gunicorn(**changes):
    return codes(gunicorn_findings({**OUR_OWN, **changes}, 2.5))


FAULTS = {
    of_sqlite: [
        ({"journal_mode": "delete"}, "error", "sqlite-durability"),
        ({"synchronous": 1}, "error", "sqlite-durability"),
        ({"fullfsync": False}, "error", "sqlite-fullfsync"),
        ({"file_system": "nfs4"}, "error", "network-file-system"),
        ({"file_system": "fuse.sshfs"}, "error", "network-file-system"),
        ({"file_system": "tmpfs"}, "error", "inbox-in-memory"),
        ({"file_system": "overlay"}, "warning", "inbox-in-container"),
        ({"version": (3, 40, 1)}, "note", "sqlite-version"),
        ({"lax_files": {"/srv/billhook.db": "read"}}, "warning", "inbox-mode-read"),
        ({"lax_files": {"/srv/billhook.db-wal": "write"}}, "error", "inbox-mode-write"),
    ],
    of_postgres: [
        ({"version": 14}, "error", "postgres-version"),
        ({"fsync": False}, "error", "postgres-fsync"),
        ({"full_page_writes": False}, "error", "postgres-fsync"),
        ({"autovacuum": False}, "warning", "postgres-autovacuum"),
        ({"open_transaction": OpenTransaction(7, "pg_dump", 900.0)}, "warning", "postgres-open-transaction"),
        ({"sslmode": "require"}, "warning", "postgres-tls"),
        ({"sslmode": "prefer", "encrypted": False}, "warning", "postgres-tls"),
        ({"superuser": True}, "warning", "postgres-superuser"),
        ({"pooler": "transaction"}, "note", "pooler"),
        ({"pooler": "session"}, "note", "pooler"),
    ],
    of_gunicorn: [
        ({"worker_class": "sync", "threads": 1}, "error", "gunicorn-worker-class"),
        ({"worker_class": "asgi"}, "warning", "gunicorn-worker-class"),
        ({"worker_class": "gthread", "threads": 4}, "warning", "gunicorn-threads"),
        ({"timeout": 0}, "warning", "gunicorn-timeout"),
        ({"timeout": 2}, "warning", "gunicorn-timeout"),
        ({"graceful_timeout": 3}, "warning", "gunicorn-graceful-timeout"),
        ({"keepalive": 2}, "note", "gunicorn-keepalive"),
        ({"preload_app": True}, "warning", "gunicorn-preload"),
        ({"forwarded_allow_ips": "*"}, "warning", "gunicorn-forwarded"),
    ],
}


@pytest.mark.parametrize("judge", FAULTS)
def test_each_fault_is_one_finding_and_what_is_good_has_none(judge):
    assert judge() == []
    for fault, level, code in FAULTS[judge]:
        assert judge(**fault) == [(level, code)], fault


def test_what_is_no_fault():
    facts = replace(GOOD_SQLITE, fullfsync=False, file_system=None)
    assert codes(facts.problems(2, 1, "linux")) == []  # fullfsync is of macOS alone
    assert of_postgres(local=True, encrypted=False, sslmode="prefer") == []  # on the same machine
    assert of_gunicorn(worker_class="gthread") == []


def test_the_file_system_is_that_of_the_innermost_mount(tmp_path):
    folder = tmp_path.resolve() / "with space" / "deep"
    folder.mkdir(parents=True)
    escaped = str(folder.parent).replace(" ", "\\040")
    table = tmp_path / "mounts"
    table.write_text(
        f"/dev/sda1 / ext4 rw 0 0\nserver:/x {escaped} nfs4 rw 0 0\nother:/y {tmp_path}/wi cifs rw 0 0\n"
    )

    assert file_system_of(folder / "billhook.db", table) == "nfs4"
    assert file_system_of(tmp_path / "billhook.db", table) == "ext4"
    assert file_system_of(folder, tmp_path / "none") is None


def test_a_host_is_local_if_no_network_is_between():
    hosts = ["", "/run/postgresql", "@abstract", "localhost", "127.0.0.2", "::1", "10.0.0.1", "db.example"]

    assert [host for host in hosts if not is_local(host)] == ["10.0.0.1", "db.example"]


# --- gunicorn -------------------------------------------------------------------------------------


def test_what_a_settings_file_leaves_out_is_gunicorns_default():
    assert codes(gunicorn_findings({}, 2.5)) == [
        ("error", "gunicorn-worker-class"),
        ("note", "gunicorn-keepalive"),
    ]


def test_a_settings_file_that_raises_is_a_finding(tmp_path):
    file = tmp_path / "gunicorn.conf.py"
    for text in ("1 / 0", "raise SystemExit('no')", "def"):
        file.write_text(text)

        finding = read_gunicorn_file(file)

        assert (finding.level, finding.code) == ("error", "gunicorn-file"), text


# --- clocks ---------------------------------------------------------------------------------------


def stored(number: int, event_type: str, signed_at: datetime = NOON) -> StoredDelivery:
    return StoredDelivery(number, "default", f"{number}", event_type, b"{}", "{}", signed_at, NOON)


def sampled(*ages_seconds: float) -> list[StoredDelivery]:
    return [
        stored(number, "PingTest", NOON - timedelta(seconds=age)) for number, age in enumerate(ages_seconds)
    ]


def test_of_unknown_types_that_a_sender_invents_the_most_frequent_are_told_and_those_without_a_type():
    types = ["", "often", "often", *(f"t{number:03}" for number in range(200))]
    sample = [stored(number, name) for number, name in enumerate(types)]

    told = [found.what for found in payload_findings(sample)]

    assert len(told) == 50
    assert told[:2] == [
        "1 of the newest deliveries name no usable event type",
        "2 of the newest deliveries are of the unknown type often",
    ]


def test_a_clock_that_is_off_shows_in_what_was_accepted():
    for ages, told in (
        ((90, 100, 95, 200, 91), ["the receiver's clock is 90 s ahead of the sender's"]),
        ((-20, -30, -12, -25, -14), ["the receiver's clock is 12 s behind the sender's"]),
        ((0.2, 250, 260, 270, 280), []),  # retries and queues, and one that came at once
        ((-4, -3, -4, -4, -4), []),
        ((90, 100, 95, 200), []),  # too few
    ):
        assert [found.what for found in clock_findings(sampled(*ages))] == told


def test_deliveries_without_a_time_say_nothing_of_clocks():
    assert list(clock_findings([each._replace(signed_at=None) for each in sampled(*range(90, 100))])) == []


def test_what_is_well_is_told_with_its_age_and_number(tmp_path):
    file = tmp_path / "secret"
    file.touch()
    changed = NOON - timedelta(days=40)
    os.utime(file, (changed.timestamp(), changed.timestamp()))
    settings = SimpleNamespace(
        **{**{one.attribute: one.default for one in OPTIONS}, "secrets_file": str(file)}
    )
    setup = SimpleNamespace(
        settings=settings, now=NOON, sample=sampled(90, 3), overview=SimpleNamespace(workers=[])
    )

    assert secret_files_text(setup) == "BILLHOOK_SECRETS_FILE: secret, changed 40 d ago"
    assert retention_text(setup).endswith("keys of deliveries without a time for ever")
    assert clock_text(setup) == "a delivery comes 3 s after it is signed, at the least"
    assert workers_text(setup) == "handlers run within the requests"
    setup.sample = []
    assert clock_text(setup) == "no delivery says when it was signed"
    settings.secrets_file = None
    assert secret_files_text(setup) == "no option names one"


@pytest.mark.parametrize(("own_app", "worker_class", "found"), [
    (True, OUR_OWN["worker_class"], [("warning", "gunicorn-worker-class")]),
    (False, OUR_OWN["worker_class"], []), (True, "gthread", []),
])  # fmt: skip
def test_a_worker_class_that_does_not_start_a_flask_app_is_named(own_app, worker_class, found):
    settings = {**OUR_OWN, "worker_class": worker_class}

    assert codes(gunicorn_findings(settings, 2.5, own_app=own_app)) == found
