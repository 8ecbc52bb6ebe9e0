"""A part of the API: the class that the endpoints of one kind of resource share."""

from __future__ import annotations

from dhsched.dispatch.context import DispatchContext
from dhsched.web import Endpoint


class Part:
    """The endpoints of one kind of resource, of one replica."""

    def __init__(self, context: DispatchContext) -> None:
        self.context = context

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints, which `Replica` serves and /openapi.json lists."""
        raise NotImplementedError
