"""A small shop that was here before billhook: an app factory, an error handler and a limit of its own.

What it takes to receive the billing service's webhooks is the last line of `create_app`.
"""

from __future__ import annotations

from pathlib import Path

from flask import Flask, jsonify
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from shop import database, orders
from shop.billing import hooks


def create_app() -> Flask:
    """The shop; every setting can be overridden by a FLASK_… variable of the environment."""
    app = Flask(__name__)
    app.config.from_mapping(
        MAX_CONTENT_LENGTH=16 * 1024,
        SHOP_DATABASE=str(Path(app.instance_path) / "shop.db"),
    )
    app.config.from_prefixed_env()

    database.init_app(app)
    app.register_blueprint(orders.blueprint)
    app.register_error_handler(HTTPException, _as_json)
    hooks.init_app(app, url_prefix="/hooks/billing")
    return app


def _as_json(error: HTTPException) -> ResponseReturnValue:
    return jsonify(shop_says=error.name), error.code or 500
