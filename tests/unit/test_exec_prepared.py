"""A child that is prepared before its generation is committed goes on from what was saved in between."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dhsched.types import Generation
from dhsched.worker.exec import exec_runtime
from dhsched.worker.inbox import LiveInfo, SessionInbox
from dhsched.worker.session import Item, Session

CHILD = """
import json, sys
for line in sys.stdin:
    said = json.loads(line)
    if "open" in said or "resume" in said:
        count = int((said.get("open") or said["resume"])["state"])
    elif "input" in said:
        count += 1
        print(json.dumps({"ack": said["input"]["seq"], "state": str(count)}), flush=True)
    elif "close" in said:
        break
"""


class Port:
    def __init__(self) -> None:
        self.claims = 0
        self.acks: asyncio.Queue[tuple[int, bytes | None]] = asyncio.Queue()

    def claim(self, session: Session) -> None:
        self.claims += 1

    def ack(self, session: Session, n: int, mark: bytes, saved: bytes | None) -> None:
        self.acks.put_nowait((n, saved))


async def test_a_prepared_child_is_told_what_was_saved_since(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    port, prepared = Port(), asyncio.Event()
    session = Session("t/a", Generation("w#1", 3), port, on_prepared=prepared.set)
    inbox = SessionInbox(session)
    inbox.made_of(LiveInfo(saved=b"1"))
    with exec_runtime(f"{sys.executable} {script}") as runtime:
        running = asyncio.ensure_future(runtime(session))
        try:
            async with asyncio.timeout(20):
                await prepared.wait()
                assert inbox.prepared and port.claims == 0, "nothing is claimed before the commit"
                inbox.allow_claim()
                assert not inbox.prepared and port.claims == 1
                inbox.begins_after(5, b"", b"41")
                inbox.accept(Item(6, "text", b"x", True))
                assert await port.acks.get() == (6, b"42")
        finally:
            inbox.close()
            await asyncio.wait_for(running, 20)
