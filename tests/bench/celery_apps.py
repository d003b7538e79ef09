"""The Celery apps that tests/bench/celery_engine.py compares; BENCH_ variables say where everything is."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
from celery import Celery
from flask import Flask
from other_queues import make_celery

from billhook import Billhook, Handlers
from billhook.events import PingTest
from support.signing import SECRET

FOLDER = Path(os.environ.get("BENCH_FOLDER", "."))
DATABASE = os.environ.get("BENCH_DATABASE", "")


def body() -> None:
    """What every task here does beside what is measured: say that it ran, a byte in a file."""
    descriptor = os.open(FOLDER / "ran", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, b".")
    os.close(descriptor)


def noop() -> Celery:
    """Celery's own task that does nothing."""
    app = make_celery()

    @app.task(name="bench.task", shared=False)
    def task(number: int) -> None:
        body()

    return app


def commits() -> Celery:
    """The same task between two commits, each of one row: begun, and done."""
    app = make_celery()
    connections: dict[int, Any] = {}

    def execute(statement: str, number: int) -> None:
        if os.getpid() not in connections:
            connections[os.getpid()] = connect_jobs()
        connections[os.getpid()].execute(statement, (number,))  # autocommit: a transaction each

    if DATABASE.startswith("postgresql"):
        begin, end = BEGUN.replace("?", "%s"), DONE.replace("?", "%s")
    else:
        begin, end = BEGUN, DONE

    @app.task(name="bench.task", shared=False)
    def task(number: int) -> None:
        execute(begin, number)
        body()
        execute(end, number)

    return app


BEGUN = "UPDATE job SET state = 'begun' WHERE id = ? AND state = 'waiting'"
DONE = "UPDATE job SET state = 'done' WHERE id = ? AND state = 'begun'"


def connect_jobs() -> Any:
    """A connection to the table of jobs, every statement committed to the disk by itself."""
    if DATABASE.startswith("postgresql"):
        return psycopg.connect(DATABASE.replace("+psycopg", ""), autocommit=True)
    connection = sqlite3.connect(FOLDER / "jobs.db", isolation_level=None, timeout=60)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def billhook() -> Celery:
    """The celery engine of an app with one handler, which does what the tasks above do."""
    handlers = Handlers()

    @handlers.on(PingTest, name="bench")
    def handle(event: PingTest) -> None:
        body()

    app = Flask("bench", instance_path=str(FOLDER))
    app.extensions["celery"] = make_celery()
    app.config.update(BILLHOOK_SECRETS=[SECRET], BILLHOOK_ENGINE="celery", BILLHOOK_INBOX_URL=DATABASE)
    Billhook(handlers=[handlers]).init_app(app)
    celery: Celery = app.extensions["celery"]
    celery.flask = app
    return celery


if "BENCH_APP" in os.environ:  # `celery -A celery_apps:celery worker`
    celery = {"noop": noop, "commits": commits, "billhook": billhook}[os.environ["BENCH_APP"]]()
