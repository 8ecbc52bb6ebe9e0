"""Runtimes that another process imports by name, for tests of `process_per_live`."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from dhsched.worker import Session


def load() -> str:
    return "model"


def load_slowly() -> None:
    print("setup began", flush=True)
    time.sleep(1_000)


async def tells(session: Session) -> None:
    """Do what the items say, and save what was seen."""
    before = session.state.decode() if isinstance(session.state, bytes) else None
    seen = {"pid": os.getpid(), "shared": session.shared, "device": session.device, "before": before}
    calls: list[str] = []

    def interrupted() -> None:
        calls.append("interrupt")
        session.spoken(None)

    session.on_interrupt = interrupted
    print("a runtime may print", flush=True)
    async for item in session.inputs():
        match item.text:
            case "raise":
                raise ValueError("as told")
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "block":
                time.sleep(1_000)  # noqa: ASYNC251
            case "wait":
                await session.interrupted.wait()
            case "bytes":
                session.state = b"\xff\x00"
                continue
            case "words":
                session.state = "words"
                continue
            case "extend":
                session.extend(300)
                session.late(0.25)
                session.late(0.5)
        said = {**seen, "now": item.text or item.kind, "config": session.config, "calls": len(calls)}
        publish = session.publish
        session.state = {**said, "publish": publish.url if publish else "", "live": session.live}


async def never_asks(session: Session) -> None:
    await asyncio.Event().wait()


async def remembers(session: Session) -> None:
    """Write each item to the journal, or do with the journal what the item says."""
    journal = await session.journal()
    session.state = {"read": [repr(value)[:40] for value in journal.values()]}
    async for item in session.inputs():
        match item.text:
            case "summary":
                journal.replace([f"{len(journal)} turns"])
            case "bytes":
                journal.append(b"\x00\xff")
            case "long":
                journal.replace(["x" * 65_000 for _ in range(16)])
            case "lost":
                journal.append("never stored")
                os.kill(os.getpid(), signal.SIGKILL)
            case _:
                journal.append({"heard": item.text})


async def listens(session: Session) -> None:
    """Write to the journal what was not input: before any item, and whenever the text asks for it."""
    journal = await session.journal()
    journal.append(f"generation {session.generation.epoch} listens")
    session.save_journal()
    async for item in session.inputs():
        journal.append(item.text)
        session.ack()
        journal.append(f"after {item.text}")
        session.save_journal()
        session.save_journal()
