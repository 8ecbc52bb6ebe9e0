"""A session's connection to nobody."""

from __future__ import annotations

from dhsched.links.messages import Source
from dhsched.ownership.journal import Change
from dhsched.worker.session import Emission, Session


class Nowhere:
    """Does nothing with what a session asks for."""

    def claim(self, session: Session) -> None: ...

    def ack(self, session: Session, n: int, mark: bytes, saved: bytes | None, journal: Change | None) -> None: ...

    def emit(self, session: Session, emission: Emission) -> None: ...

    def log(self, session: Session, source: Source, text: str | bytes) -> None: ...
