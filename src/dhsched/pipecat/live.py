"""One generation of a live, as its bot sees it: the context, the pipeline, and the input that becomes frames."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from pipecat.frames.frames import LLMMessagesAppendFrame, TTSSpeakFrame
from pipecat.pipeline.base_pipeline import BasePipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext, LLMSpecificMessage
from pipecat.transports.base_transport import TransportParams
from pipecat.transports.smallwebrtc.transport import SmallWebRTCTransport
from pipecat.workers.runner import WorkerRunner

from dhsched.errors import BadSetting, BotEnded
from dhsched.pipecat.peer import Peer, dialling
from dhsched.pipecat.processor import MARKS, LiveProcessor, OurInterruptionFrame, Said
from dhsched.pipecat.signalling import Calling
from dhsched.pipecat.voice import chars_heard
from dhsched.tasks import cancel, first
from dhsched.worker import Item, Session
from dhsched.worker.conversation import EXTEND_EVERY_S, TURN_S, emit_heard
from dhsched.worker.memory import Memory, Message

Pushed = Literal["spoken", "answered"]

START_S = 60.0  # A pipeline that has not started by then has failed; Pipecat gives up earlier by itself.
STOP_S = 5.0  # A pipeline that does not end for this long is left to the end of the process.


class Live:
    """One generation of a live. `processor` must stand behind `transport.output()` in the bot's pipeline."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.processor = LiveProcessor(self._extend, self._word)
        self._context: LLMContext | None = None
        self._memory: Memory | None = None
        self._peer: Peer | None = None
        self._pushed: Pushed = "spoken"
        self._worker: PipelineWorker
        self._over: asyncio.Future[Said] | None = None  # Of the turn of the current item.
        self._item: Item | None = None
        self._last: tuple[Item | None, int] = (None, 0)  # The last spoken item, and how many characters were heard.
        self._cuts_due = 0  # Interruptions of ours that are on their way through the pipeline.
        self._extended_at = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def id(self) -> str:
        """The live's id."""
        return self.session.live

    @property
    def body(self) -> dict[str, Any]:
        """The `body` that the client sent to `POST /start`; the live's metadata if there was no such request."""
        metadata = self.session.metadata
        return dict(metadata["body"]) if isinstance(metadata.get("body"), dict) else metadata

    async def context(self, messages: Sequence[Message] = (), **options: Any) -> LLMContext:
        """Return the conversation's context: `messages` (the prompt), then the messages of all generations up to the
        last ack. The call claims the live: make the services of the pipeline before. `options` are those of
        LLMContext: `tools`, `tool_choice`."""
        self._memory = Memory(await self.session.journal(), list(messages))
        self._context = LLMContext([as_message(each) for each in self._memory.messages], **options)
        return self._context

    def transport(self, params: TransportParams, ice_servers: Sequence[str] = ()) -> SmallWebRTCTransport:
        """Return a transport for the client that `POST /start` has created the live for (start.py). Input waits until
        the client is connected. If the client is lost during an item, the item is said again to the next client."""
        self._peer = Peer(params, ice_servers, self.processor.changed)
        return self._peer.transport

    async def run(self, pipeline: BasePipeline, *, pushed: Pushed = "spoken", **options: Any) -> None:
        """Run the pipeline until the live moves on or ends.

        Pushed text is `spoken` as it is (TTSSpeakFrame), or `answered`: a message of the user for the language model
        (LLMMessagesAppendFrame). `options` are those of Pipecat's PipelineWorker, such as `params` or `observers`.
        Raise BotEnded if the pipeline ends by itself, BadSetting if `processor` is not in it.
        """
        self._pushed = pushed
        self._worker = PipelineWorker(pipeline, **{"cancel_on_idle_timeout": False, **options})
        self._worker.add_reached_downstream_filter(MARKS)
        self._worker.add_event_handler("on_frame_reached_downstream", self._marked)
        started = asyncio.Event()
        self._worker.add_event_handler("on_pipeline_started", lambda *_: started.set())
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(self._worker)
        running = asyncio.create_task(runner.run())
        try:
            await self._until_started(started, running)
            self.session.on_interrupt = self._interrupted
            serving = asyncio.create_task(self._serve_claimed())
            try:
                await asyncio.wait((serving, running), return_when=asyncio.FIRST_COMPLETED)
                if not serving.done():
                    raise BotEnded(
                        f"the pipeline of {self.id} has ended although the live goes on; end the live instead"
                    )
                serving.result()
            finally:
                await cancel(serving)
        finally:
            self.session.on_interrupt = None
            await cancel(*self._tasks)
            if self._peer is not None:
                await self._peer.leave(Calling.of(self.session.metadata))
            await self._stop(running)

    # -- the pipeline

    async def _until_started(self, started: asyncio.Event, running: asyncio.Task[None]) -> None:
        await first(started, tasks=(running,), within_s=START_S)
        if running.done():
            running.result()
        if not started.is_set():
            raise BotEnded(f"the pipeline of {self.id} has not started")
        if not self.processor.started:
            raise BadSetting("live.processor is not in the pipeline: put it right behind transport.output()")

    async def _stop(self, running: asyncio.Task[None]) -> None:
        if not running.done():
            await self._worker.cancel(reason="the live has moved on")
            await asyncio.wait((running,), timeout=STOP_S)
        await cancel(running)

    async def _marked(self, _: PipelineWorker, frame: Any) -> None:
        """End the turn of a mark that has reached the end of the pipeline: what was heard is in the context by then."""
        said: Said = frame.said
        over = self._over
        if said.ours:
            self._cuts_due -= 1
            self.processor.changed.set()
        if over is not None and not over.done():
            if said.turn == self.processor.turn:
                over.set_result(said)
        elif said.text and self._item is None:
            # The user spoke into a microphone, and there is no item to ack.
            self._settle(said)
            self.session.save_journal()
            emit_heard(self.session, 0, said.text, cut=said.cut)

    # -- input

    async def _serve_claimed(self) -> None:
        """Serve the input. The client learns of this generation when the generation is claimed, not before."""
        serving = asyncio.create_task(self._serve())
        try:
            await first(self.session.claimed, tasks=(serving,))
            async with dialling(self._peer, self.session.metadata, self.session.generation.epoch):
                await serving
        finally:
            await cancel(serving)

    async def _serve(self) -> None:
        async for item in self.session.inputs():
            if item.kind == "config" or not item.text.strip():
                continue
            self._item = item
            if not await self._say(item):
                return
            self._item = None

    async def _say(self, item: Item) -> bool:
        """Say one item. Return False if the live has moved on before the end: then the item is not acked."""
        while True:
            if not await self._until_idle():
                return not self.session.stopping.is_set()
            before = None if self._context is None else [*self._context.messages]
            said = await self._say_once(item)
            if said is None:
                return False
            if self._peer is None or not self._peer.lost.is_set() or self.session.interrupted.is_set():
                break
            # Nobody heard the end: the next client hears the whole item, and the context has it once.
            if self._context is not None and before is not None:
                self._context.set_messages(before)
        self._settle(said)
        self._told(item, said)
        return True

    async def _say_once(self, item: Item) -> Said | None:
        """Say one item once, to its end or until an interruption. Return None if the live has moved on before."""
        turn, self._over = self.processor.begin(), asyncio.get_running_loop().create_future()
        self._extend(at_once=True)
        if self._pushed == "spoken":
            await self._worker.queue_frame(TTSSpeakFrame(item.text, append_to_context=True))
        else:
            asked = [{"role": "user", "content": item.text}]
            await self._worker.queue_frame(LLMMessagesAppendFrame(asked, run_llm=True))
        losing = asyncio.create_task(self._cut_when_lost(self._over))
        try:
            await first(self.session.stopping, tasks=(self._over,))
        finally:
            await cancel(losing, self._over)
        if self._over.cancelled():
            return None
        said = self._over.result()
        assert said.turn == turn
        return said

    async def _cut_when_lost(self, over: asyncio.Future[Said]) -> None:
        """Interrupt the turn if its client is lost: without one, a voice speaks faster than anybody listens."""
        if self._peer is not None:
            await self._peer.lost.wait()
            if not over.done():
                self._interrupt()

    async def _until_idle(self) -> bool:
        """Wait until nobody speaks and somebody listens; return False if the item is interrupted, or the live moves on,
        before that."""
        while not self._free and not self.session.interrupted.is_set():
            self.processor.changed.clear()
            self._extend()
            await first(self.processor.changed, self.session.stopping, within_s=EXTEND_EVERY_S)
            if self.session.stopping.is_set():
                return False
        # An interrupt that has arrived behind the item drops it.
        return not self.session.interrupted.is_set()

    @property
    def _free(self) -> bool:
        listened = self._peer is None or self._peer.connected.is_set()
        return listened and not self._cuts_due and self.processor.voice.idle

    def _interrupted(self) -> None:
        """Stop the pipeline, because an interrupt has arrived; the interrupt itself comes later, as an item."""
        self.processor.changed.set()
        in_a_turn = self._over is not None and not self._over.done()
        if in_a_turn or not self.processor.voice.idle:
            self._interrupt()
        if not in_a_turn and self._pushed == "spoken":
            self.session.spoken(*self._last)

    def _interrupt(self) -> None:
        self._cuts_due += 1
        task = asyncio.create_task(self._worker.queue_frame(OurInterruptionFrame()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- what was heard

    def _settle(self, said: Said) -> None:
        """Make the context end with what was heard, and write its new messages to the journal."""
        if self._context is None or self._memory is None:
            return
        messages = self._context.messages
        if said.cut and said.late:
            last: Any = messages[-1] if messages and isinstance(messages[-1], dict) else {}
            content = last.get("content") if last.get("role") == "assistant" else None
            if isinstance(content, str) and content != said.late and said.late.startswith(content):
                # An interruption drops words that are on their way to the aggregator, and were heard.
                self._context.set_messages([*messages[:-1], {**last, "content": said.late}])
            elif content != said.late:
                self._context.add_message({"role": "assistant", "content": said.late})
        self._memory.keep([as_json(each) for each in self._context.messages])

    def _told(self, item: Item, said: Said) -> None:
        """Tell the application what of the item was heard."""
        if self._pushed == "spoken":
            chars = chars_heard(item.text, said.text) if said.cut else len(item.text)
            self._last = item, chars
            self.session.spoken(item, chars)
        emit_heard(self.session, item.seq, said.text, cut=said.cut)

    def _word(self) -> None:
        """Report how much of the item was heard by now. After an interrupt only the end of the turn reports that."""
        item = self._item
        if item is not None and self._pushed == "spoken" and not self.session.interrupted.is_set():
            self.session.spoken(item, chars_heard(item.text, self.processor.heard))

    def _extend(self, *, at_once: bool = False) -> None:
        """Ask for further TURN_S for the current item, because the pipeline works."""
        now = asyncio.get_running_loop().time()
        if at_once or now >= self._extended_at + EXTEND_EVERY_S:
            self._extended_at = now
            self.session.extend(TURN_S)


SPECIFIC = "dhsched_llm"
"""The field that names the service of a message that only this language model service understands."""


def as_json(message: Any) -> Message:
    """Return a message of a context as a JSON object."""
    if isinstance(message, LLMSpecificMessage):
        return {SPECIFIC: message.llm, "message": message.message}
    return dict(message)


def as_message(value: Message) -> Any:
    """Return the message of a context that `as_json` made this object from."""
    return LLMSpecificMessage(value[SPECIFIC], value["message"]) if SPECIFIC in value else value
