"""The smallest runtime that keeps a state: it prints each item with its count, which survives crashes and moves."""

from __future__ import annotations

from dhsched.worker import Session, run


async def echo(session: Session) -> None:
    async for item in session.inputs():  # Asking for the next item acks this one, with the state below.
        count = session.state.get("count", 0) + 1
        print(f"{session.live} {count}: {item.text}", flush=True)
        session.state = {"count": count}


if __name__ == "__main__":
    run(echo, pool="gpu", capacity=8)
