"""Log in. Source: spec, "Endpoints", Auth."""

from __future__ import annotations

from datetime import datetime

from billhook.client.operations.group import ApiGroup

__all__ = ["Auth"]


class Auth(ApiGroup):
    """The login. Every other operation logs in by itself when it needs a token."""

    def login(self) -> datetime:
        """Fetch a new access token now, to check the credentials; return when it expires (UTC).

        The token stays in the client. Calls POST /login. Raises AuthenticationFailed, or another ApiError.
        """
        return self._session.log_in()
