"""The HTTP interface: authentication, parsing, routes and their OpenAPI description."""

__all__: list[str] = []
