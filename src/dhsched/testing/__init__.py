"""Test a runtime without a deployment: scripted input, interrupts, crashes and moves, in milliseconds.

from dhsched import testing


async def test_my_runtime() -> None:
    async with testing.live(my_runtime, config={"voice": "anna"}) as live:
        await live.push("hello")
        await live.acked(1)
        await live.crash()
        assert live.saved_state == {"count": 1}

Words: a *scripted live* is a live of which the test decides everything that a deployment would; a *model Worker* is a
Worker whose store is the protocol's model in this process.
Walk: `live` (scripted_live.py) makes a `Cell` and its first `ModelWorker` (model_worker.py). A model Worker runs the
real agent and the real session (worker/agent.py, worker/session.py); every claim, release and ack is a step of the
ownership model, so its fence is the store's.
"""

from dhsched.errors import RuntimeFailed
from dhsched.testing.scripted_live import ScriptedLive, live

__all__ = ["RuntimeFailed", "ScriptedLive", "live"]
