"""Errors as values: they travel between processes, and are the same when they arrive."""

from __future__ import annotations

import copy
import pickle

from billhook import errors

SERVICE = {"status": 404, "type": "invalid_request_error", "code": "resource_not_found", "message": "no such"}
EACH = [
    errors.MissingSecret("eu"),
    errors.WeakSecret(3, 16),
    errors.DuplicateHandlerName("send"),
    errors.SchemaMismatch(None, "0003"),
    errors.UnreleasedSchema("/srv/billhook.db", "0009", "0010", "run.worker"),
    errors.ForeignFile("/srv/shop.db", "orders, users", "0003"),
    errors.SchemaForbidden("billing", "billhook", 'CREATE SCHEMA "billhook"'),
    errors.MissingExtra("billhook.client", "client"),
    errors.InvalidPayload("the body is not valid", [{"loc": ["date"], "msg": "Field required"}]),
    errors.IllegalTransition("run", "done", "due"),
    errors.FieldMissing("the grant needs a name", "creditGrant.name"),
    errors.ResourceNotFound("GET /plans/{planId}", **SERVICE, params=[{"param": "a", "message": "b"}]),
    errors.UnexpectedResponse("GET /invoices", "it is not JSON", status=200, excerpt="<h1>"),
    errors.ServiceUnavailable("POST /contracts", "it took too long", sent=True),
    errors.SandboxError(429, "rate_limit_exceeded", "too many requests", b"{}", 3),
    errors.Retry("later", after_seconds=30),
    errors.PutOffTooOften(30),
]


def test_an_error_survives_pickling_and_copying_with_its_facts():
    for error in EACH:
        for found in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(found) is type(error)
            assert (str(found), found.args) == (str(error), error.args)
            assert vars(found) == vars(error)
