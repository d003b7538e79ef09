"""What an inbox is made of."""

from __future__ import annotations

from sqlalchemy import create_engine, inspect


def structure(url):
    """Everything about the tables at a URL that a program could notice."""
    engine = create_engine(url)
    found = inspect(engine)
    tables = {
        name: (
            # Where they stand counts on SQLite only: see the test of the body's place.
            sorted((one["name"], str(one["type"]), one["nullable"]) for one in found.get_columns(name)),
            found.get_pk_constraint(name)["constrained_columns"],
            sorted(
                (
                    str(one["name"]),
                    one["column_names"],
                    {k: str(v) for k, v in one["dialect_options"].items()},
                )
                for one in found.get_indexes(name)
                if "duplicates_constraint" not in one
            ),
            sorted((one["name"], one["column_names"]) for one in found.get_unique_constraints(name)),
            [(one["referred_table"], one["options"]) for one in found.get_foreign_keys(name)],
        )
        for name in found.get_table_names()
    }
    engine.dispose()
    return tables
