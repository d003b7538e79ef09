"""The root of the tree that is drawn in billhook.errors."""

from __future__ import annotations

from typing import Any

__all__ = ["BillhookError"]


class BillhookError(Exception):
    """The root: catching it catches everything that billhook raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would call the class with the text alone, and most of them are made of other things.
        return _rebuilt, (type(self), self.args), self.__dict__


def _rebuilt(cls: type[BillhookError], args: tuple[Any, ...]) -> BillhookError:
    return cls.__new__(cls, *args)
