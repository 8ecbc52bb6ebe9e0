"""The Worker's SDK: write one coroutine per live, and run it (docs/guides/write-a-runtime.md).

from dhsched.worker import Session, run


async def avatar(session: Session) -> None:
    async for item in session.inputs():
        print(item.text)


run(avatar, pool="gpu", capacity=200)

Words: a *runtime* is the coroutine (or `--exec` command) that serves one live; a *session* is one generation of a live,
as its runtime sees it; a *boot* is one WorkerID from registration to its end; the *slot table* lists the generations
that the boot must run; to *depart* is to give a slot back.
Walk: main.py takes the device locks (devices.py), runs the setup (setup.py) and makes a boot. dispatch_link.py
registers the boot and receives its slot table, agent.py starts and stops sessions by the table, pull_client.py brings
their input through inbox.py into session.py. embedding.py does the same inside a program with its own event loop.
"""

from dhsched.worker.embedding import Worker
from dhsched.worker.exec import Exec
from dhsched.worker.main import run
from dhsched.worker.options import WorkerOptions
from dhsched.worker.runtimes import Runtime
from dhsched.worker.session import Item, Publish, Session

__all__ = ["Exec", "Item", "Publish", "Runtime", "Session", "Worker", "WorkerOptions", "run"]
