"""Errors of the server that a client or an operator must handle."""

from __future__ import annotations

from cluster_model.errors import InputError


class ServerError(InputError):
    """A server that cannot be started as asked."""


class RequestError(InputError):
    """A request that cannot be answered.

    Attributes
    ----------
    status : int
        The HTTP status that says so.
    """

    def __init__(self, sentence: str, status: int = 400) -> None:
        super().__init__(sentence)
        self.status = status


class UnknownLoadsError(RequestError):
    """A request that needs loads which nobody has measured."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"loads are not known: {reason}; what needs none can be asked for: healing, brokers to "
            "remove or to demote, and goals by name that read no measured resource",
            503,
        )
