"""What runtimes that hold a conversation have in common: how long a turn may take, and what is told of it."""

from __future__ import annotations

import contextlib

from dhsched.errors import TooManyEmits
from dhsched.types import EMIT_BYTES_MAX
from dhsched.worker.session import Session

TURN_S = 60.0  # An item about which nothing new was said for this long is a stall.
EXTEND_EVERY_S = 10.0  # A runtime that speaks asks for further TURN_S no more often than this.
HEARD_BYTES = EMIT_BYTES_MAX // 2  # Of a longer turn the application is told the end, not the beginning.


def emit_heard(session: Session, seq: int, text: str, *, cut: bool) -> None:
    """Tell the application what was heard of item `seq`, or of a turn that no item asked for (0)."""
    last = text.encode()[-HEARD_BYTES:].decode(errors="ignore")
    with contextlib.suppress(TooManyEmits):  # Nobody reads them fast enough; what was heard is in the journal.
        session.emit("heard", {"seq": seq, "text": last, "chars": len(text), "cut": cut})
