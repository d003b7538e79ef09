"""Keeps compiled statements and templates for all tests of a process.

Each test has an inbox and an app of its own, as two programs would, and so compiled the same statements and
templates anew: a quarter of the suite's time. What is compiled depends on neither, but for the schema on
PostgreSQL, of which `support.postgres.fresh_schema` uses few names.
"""

from __future__ import annotations

from typing import Any

from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket
from sqlalchemy import Dialect, Engine, table
from sqlalchemy.util import LRUCache

_TABLE = table("delivery")
_STATEMENTS: LRUCache[Any, Any] = LRUCache(20_000)


def keep_compiled() -> None:
    """Have the engines and the template environments of this process share what they compile."""
    _keep_statements()
    _keep_templates()


def _version(dialect: Dialect) -> tuple[object, ...]:
    schema = dialect.identifier_preparer.schema_for_object(_TABLE)
    return type(dialect), getattr(dialect, "server_version_info", None), schema


def _keep_statements() -> None:
    create = Engine.__init__

    # The names of the parameters count: create_engine() looks them up, and refuses other options.
    def create_sharing(
        engine: Engine,
        pool: Any,
        dialect: Dialect,
        url: Any,
        logging_name: str | None = None,
        echo: Any = None,
        query_cache_size: int = 500,
        execution_options: Any = None,
        hide_parameters: bool = False,
    ) -> None:
        shared = {**(execution_options or {}), "compiled_cache": _STATEMENTS}
        create(engine, pool, dialect, url, logging_name, echo, query_cache_size, shared, hide_parameters)

    # SQLAlchemy looks a statement up by its dialect too, of which every engine has one.
    Dialect.__hash__ = lambda dialect: hash(type(dialect))  # type: ignore[method-assign, assignment]
    Dialect.__eq__ = lambda one, other: _version(one) == _version(other)  # type: ignore[method-assign, assignment]
    Engine.__init__ = create_sharing  # type: ignore[method-assign]


class _Templates(BytecodeCache):
    """Code of templates, by the name and content of their files."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], Any] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._codes[bucket.key, bucket.checksum] = bucket.code


def _keep_templates() -> None:
    create, templates = Environment.__init__, _Templates()

    def create_sharing(environment: Environment, *args: Any, **options: Any) -> None:
        create(environment, *args, **{"bytecode_cache": templates, **options})

    Environment.__init__ = create_sharing  # type: ignore[method-assign, assignment]
