"""Runtimes for tests: they print what they are given; one of them never acks the item `hang`."""

from __future__ import annotations

import asyncio

from dhsched.worker import Session
from dhsched.worker.runtime import say


async def hang_on_hang(session: Session) -> None:
    await tell(session, hangs=True)


async def tell(session: Session, hangs: bool = False) -> None:
    say(session, "open", state=session.state.decode())
    async for item in session.inputs():
        say(session, item.kind, seq=item.seq, text=item.text)
        session.state = f"after {item.text}".encode()
        if hangs and item.text == "hang":
            await asyncio.sleep(3600)
