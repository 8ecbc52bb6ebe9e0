"""One model for all lives of a Worker, loaded once, called with batches across lives.

A GPU answers eight requests in little more than the time of one. `setup` loads the model and begins the batcher; the
runtimes of all lives wait for the batcher, which calls the model in a thread, so that the event loop goes on turning.
"""

from __future__ import annotations

import asyncio
import time

from dhsched.worker import Session, run

BATCH_MAX = 8  # More requests than this wait for the next call of the model.
GATHER_S = 0.005  # A request waits this long for others, to share a call with them.


class FakeModel:
    """Takes 20 ms for a batch of any size. Its calls are counted."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def generate(self, prompts: list[str]) -> list[str]:
        self.batches.append(len(prompts))
        time.sleep(0.02)
        return [prompt.upper() for prompt in prompts]


class Batcher:
    """Gathers requests of all lives, and calls the model with up to BATCH_MAX of them."""

    def __init__(self, model: FakeModel) -> None:
        self.model = model
        self._waiting: asyncio.Queue[tuple[str, asyncio.Future[str]]] = asyncio.Queue()
        self._task = asyncio.create_task(self._run())

    async def generate(self, prompt: str) -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((prompt, answer))
        return await answer

    async def _run(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            await asyncio.sleep(GATHER_S)
            while len(batch) < BATCH_MAX and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            try:
                answers = await asyncio.to_thread(self.model.generate, [prompt for prompt, _ in batch])
            except Exception as error:  # Every live of the batch hears of it, and the next batch may go well.
                for _, answer in batch:
                    if not answer.cancelled():
                        answer.set_exception(error)
                continue
            for (_, answer), text in zip(batch, answers, strict=True):
                if not answer.cancelled():  # A runtime may have been stopped while it waited.
                    answer.set_result(text)


async def load() -> Batcher:
    """Load the model, once per process; every session has the batcher as `session.shared`."""
    model = await asyncio.to_thread(FakeModel)
    return Batcher(model)


async def speaks(session: Session) -> None:
    batcher: Batcher = session.shared
    async for item in session.inputs():
        print(f"{session.live}: {await batcher.generate(item.text)}", flush=True)


if __name__ == "__main__":
    run(speaks, setup=load, pool="gpu", capacity=64)
