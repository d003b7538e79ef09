"""Every command of `billhook`, as a user types it."""

from __future__ import annotations

from collections.abc import Iterator

import click


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield each command of a group and below it, by what a user types."""
    yield path, group
    for name, command in sorted(group.commands.items()):
        here = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from commands(command, here)
        else:
            yield here, command
