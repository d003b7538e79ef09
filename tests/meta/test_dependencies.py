"""What billhook requires admits what other packages require, and `.ci/floors` has the lowest of it."""

from __future__ import annotations

import os
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
BASE = [Requirement(line) for line in PROJECT["dependencies"]]

APPS = {
    "ckan 2.12.0": "alembic==1.18.5 blinker==1.9.0 click==8.4.2 flask==3.1.3 itsdangerous==2.2.0 "
    # Its extra `requirements` pins each of them.
    "jinja2==3.1.6 markupsafe==3.0.3 sqlalchemy==2.0.51 werkzeug==3.1.8",
    "mlflow 3.18.0": "cryptography==50.0.2 gunicorn==26.2.0",  # wants <51 and <27
    "apache-airflow-core 3.3.2": "a2wsgi==1.10.8 gunicorn==23.0.0 sqlalchemy==2.0.50",  # its lowest
    "dash 4.4.1": "flask==3.1.3 werkzeug==3.1.9",  # wants <3.2 of both
    "flask-appbuilder 5.3.0": "click==8.5.1 flask==3.1.3 sqlalchemy==2.0.51 werkzeug==3.1.9",
    "flask-limiter 3.12": "rich==13.9.4",  # wants rich<14
}
"""Versions that a package of these days wants, or the newest or oldest that it allows, by its metadata."""


@pytest.mark.parametrize("app", APPS)
def test_the_versions_of_another_package_may_stay(app):
    asymmetric = map(Requirement, EXTRAS["asymmetric"])
    bounds = {each.name: each.specifier for each in (*BASE, *asymmetric)}

    wanted = (each.split("==") for each in APPS[app].split())
    refused = {name for name, version in wanted if version not in bounds[name]}

    assert not refused


def test_control_sqlalchemy_1_is_refused():
    """apache-superset wants it."""
    (bound,) = [each.specifier for each in BASE if each.name == "sqlalchemy"]

    assert "1.4.54" not in bound


def test_no_bound_is_an_upper_one():
    every = [*BASE, *(Requirement(line) for lines in EXTRAS.values() for line in lines)]

    assert {part.operator for each in every for part in each.specifier} == {">="}


@pytest.mark.parametrize("extra", ["sandbox", "test"])
def test_what_serves_is_part_of_what_starts_servers(extra):
    found, names = set(), [extra]
    while names:
        name = names.pop()
        found.add(name)
        for each in (Requirement(line) for line in EXTRAS[name]):
            names += each.extras - found if each.name == "billhook" else ()

    assert "serve" in found


def test_the_floors_are_installed():
    """So `.ci/floors` tests what pyproject.toml says, and not what a tool of the tests wants beyond it."""
    if "BILLHOOK_TEST_FLOORS" not in os.environ:
        return
    names = (
        "serve",
        "postgres",
        "celery",
        "client",
        "asymmetric",
        "jwt",
        "metrics",
        "notify",
        "otel",
        "sandbox",
    )
    lines = [line for name in names for line in EXTRAS[name]]
    every = {each.name: each for each in [*BASE, *map(Requirement, lines)] if each.name != "billhook"}

    lowest = {name: Version(next(iter(each.specifier)).version) for name, each in every.items()}

    assert {name: Version(version(name)) for name in lowest} == lowest
