"""Logging in. Source: spec, "Endpoints", Auth."""

from __future__ import annotations

from datetime import datetime

from billhook.client.operations.group import ApiGroup

__all__ = ["Auth"]


class Auth(ApiGroup):
    """The login, which every other operation does by itself when it is due."""

    def login(self) -> datetime:
        """Fetch a new access token now, to see that the credentials are good; returns when it ends (UTC).

        The token stays in the client. POST /login. Raises AuthenticationFailed, and the other ApiErrors.
        """
        return self._session.log_in()
