"""The HTTP interface: authentication, parsing, routes and their OpenAPI description."""
