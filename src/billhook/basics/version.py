"""Which billhook is installed: the version that pip knows, with the commit that it was built from."""

from __future__ import annotations

from functools import cache


@cache
def installed_version() -> str | None:
    """Return the version; None if the build did not know its commit, or nothing is installed.

    In an editable install it is that of the commit from which it was installed.
    """
    from importlib.metadata import PackageNotFoundError, version  # of no use to a receiver

    try:
        found = version("billhook")
    except PackageNotFoundError:
        return None
    return None if found.endswith("+unknown") else found


def version_text() -> str:
    """Return the version in words."""
    found = installed_version()
    return "billhook, version unknown" if found is None else f"billhook {found}"
