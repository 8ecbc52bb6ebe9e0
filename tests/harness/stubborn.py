"""A runtime for tests: it prints what it is given, and never acks `hang in N` in generation N."""

from __future__ import annotations

import asyncio

from dhsched.worker import Session
from dhsched.worker.runtimes import say


async def tell(session: Session) -> None:
    say(session, "open", state=session.state.decode() if session.state else "")
    async for item in session.inputs():
        say(session, item.kind, seq=item.seq, text=item.text)
        session.state = f"after {item.text}".encode()
        if item.text == f"hang in {session.generation.epoch}":
            await asyncio.sleep(3600)
