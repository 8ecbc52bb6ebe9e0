"""The Worker's SDK: write one coroutine per live, and run it (docs/guides/write-a-runtime.md).

from dhsched.worker import Session, run


async def avatar(session: Session) -> None:
    async for item in session.inputs():
        print(item.text)


run(avatar, pool="gpu", capacity=200)
"""

from dhsched.worker.exec import Exec
from dhsched.worker.main import run
from dhsched.worker.session import Item, Publish, Session

__all__ = ["Exec", "Item", "Publish", "Session", "run"]
