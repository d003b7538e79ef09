"""The sandbox over HTTP."""

__all__: list[str] = []
