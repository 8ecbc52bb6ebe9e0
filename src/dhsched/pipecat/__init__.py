"""A Pipecat pipeline as a runtime: pushed text is spoken, and its context survives `kill -9` (docs/guides/pipecat.md).

    async def bot(live: Live) -> None:
        context = await live.context([{"role": "system", "content": "You are Anna."}])
        user, assistant = LLMContextAggregatorPair(context)
        steps = [user, llm, tts, transport.output(), live.processor, assistant]
        await live.run(Pipeline(steps))

    run_bot(bot, pool="gpu", capacity=2)

Words: a *bot* is the author's coroutine, called once per generation with a *Live*; a *turn* is what is said from the
moment the bot begins to answer until it stops speaking; a turn is *cut* when an interruption ends it; a *mark* is a
frame of ours that shows that every processor has handled what came before it.
Walk: bots.py runs a Worker whose runtime calls the bot. live.py takes input items one by one, hands them to the
pipeline as frames and acks each when its turn is over, which processor.py sees in the frames that leave the output.
voice.py decides when a turn is over, worker/memory.py which messages go to the journal; both are pure. start.py creates
lives for clients and passes their offers to the current generation, where peer.py answers them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dhsched.pipecat.bots import run_bot, runtime_of
    from dhsched.pipecat.live import Live
    from dhsched.pipecat.processor import LiveProcessor

__all__ = ["Live", "LiveProcessor", "run_bot", "runtime_of"]

HOMES = {"Live": "live", "LiveProcessor": "processor", "run_bot": "bots", "runtime_of": "bots"}
"""Where the names are defined. They are loaded when they are used: the pure parts need no Pipecat."""


def __getattr__(name: str) -> Any:
    if name in HOMES:
        return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
