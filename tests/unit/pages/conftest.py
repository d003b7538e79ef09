"""A small app with one set of pages: a list, and a form that changes something."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask, abort, request
from jinja2 import DictLoader

from billhook.pages.pages import PageLink, Pages, Visitor

TEMPLATES = {
    "list.html": """{% extends "pages/layout.html" %}{% import "pages/macros.html" as ui %}
{% block title %}List{% endblock %}
{% block main %}<p>{{ text }}</p><p>{{ text|shown }}</p>
{% call ui.form(url_for(".change")) %}<button>Change it</button>{% endcall %}{% endblock %}"""
}


@pytest.fixture
def site() -> Callable[..., Any]:
    """Makes an app with pages; `changes` are the values that its form was sent with."""

    def make(
        *, text: str = "", may_act: bool = True, name: str = "alice", key: str = "k" * 32, live: bool = False
    ) -> Any:
        made = SimpleNamespace(changes=[], visitor=Visitor(name, may_act), key=key)
        app = Flask("site")

        def identify() -> Visitor:
            return made.visitor or abort(401)

        pages = Pages(
            "site_pages", "billhook.pages", title="Site", links=[PageLink("list", "List")],
            identify=identify, key=lambda: made.key, live=live,
        )  # fmt: skip
        pages._templates.loader.loaders.insert(0, DictLoader(TEMPLATES))
        pages.blueprint.add_url_rule("/", "list", lambda: pages.render("list.html", text=text))

        def change() -> Any:
            made.changes.append(request.form.get("value"))
            return pages.redirect("/pages/", "It is changed")

        pages.blueprint.add_url_rule("/change", "change", change, methods=["POST"])
        app.register_blueprint(pages.blueprint, url_prefix="/pages")
        made.app, made.client, made.pages = app, app.test_client(), pages
        return made

    return make
