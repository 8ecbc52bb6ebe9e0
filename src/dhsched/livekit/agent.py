"""A whole agent of LiveKit as a live: admitted and placed by us, its conversation in the live's journal.

    async def anna(live: AgentLive) -> None:  # called once per generation
        session = AgentSession(stt=..., llm=..., tts=...)
        agent = Agent(instructions="You are Anna.", chat_ctx=await live.context())
        await live.run(session, agent)

    run_agent(anna, pool="agents", capacity=4)

LiveKit's own Worker takes jobs of its server, and a job is lost with its process. Here a generation joins the room by
itself (joining.py), with an identity of its own epoch, and the next one goes on with the conversation up to what was
stored last. A message is stored when it was heard; the ack of a pushed item is stored in the same step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Unpack

import structlog
from livekit import rtc
from livekit.agents import Agent, AgentSession, ChatContext
from livekit.agents.voice.room_io import RoomOptions

from dhsched.errors import BotEnded
from dhsched.livekit.joining import Access, Place, joined
from dhsched.livekit.seats import call_of
from dhsched.tasks import cancel, first
from dhsched.worker import Item, Runtime, Session, WorkerOptions, run
from dhsched.worker.conversation import EXTEND_EVERY_S, TURN_S, emit_heard
from dhsched.worker.memory import TOO_LARGE, Memory, Message

log = structlog.get_logger(__name__)

Entry = Callable[["AgentLive"], Awaitable[None]]
Pushed = Literal["spoken", "answered"]


def run_agent(agent: Entry, **worker: Unpack[WorkerOptions]) -> None:
    """Run a Worker of agents until a signal stops it. `agent` is called once per generation of a live.

    `worker` are the options of `dhsched.worker.run`: `pool` and `capacity` at least."""
    run(agent_runtime(agent), **worker)


def agent_runtime(agent: Entry, access: Access | None = None) -> Runtime:
    """Return the runtime that `run_agent` runs, for a Worker inside a program of your own."""
    found = access or Access.found()

    async def runtime(session: Session) -> None:
        call = call_of(session.metadata, session.digital_id)
        live = session.live.partition("/")[2]
        async with joined(found, call, live, session.generation.epoch, hears=True) as place:
            await agent(AgentLive(session, place))

    return runtime


class AgentLive:
    """One generation of an agent: the room, which it has joined without publishing, and the conversation."""

    def __init__(self, session: Session, place: Place) -> None:
        self.session = session
        self.room: rtc.Room = place.room
        self._place = place
        self._memory: Memory | None = None
        self._known: list[Message] = []  # What earlier generations have stored.
        self._agents: AgentSession[Any] | None = None
        self._pushed: Pushed = "answered"
        self._item: Item | None = None
        self._closed = asyncio.Event()
        self._reason_closed = ""

    async def context(self) -> ChatContext:
        """Return the conversation of all generations, up to the last stored message. The call claims the live: make the
        models before, because a prepared generation waits here."""
        self._memory = Memory(await self.session.journal(), (), without_content)
        self._known = [*self._memory.messages]
        return ChatContext.from_dict({"items": self._known})

    async def run(
        self, agents: AgentSession[Any], agent: Agent, *, pushed: Pushed = "answered", **options: Any
    ) -> None:
        """Take part in the room until the live moves on or ends.

        Pushed text is `answered` (`generate_reply`), or `spoken` as it is (`say`). `options` are those of
        AgentSession.start. Raise BotEnded if the session ends by itself: the live is placed anew then.
        """
        if self._memory is None:
            await self.context()
        if self.session.stopping.is_set():
            return
        self._agents, self._pushed = agents, pushed
        agents.on("conversation_item_added", self._on_said)
        agents.on("close", self._on_close)
        await self._place.take()
        # A user who leaves may come back, and the live's own rules say when it ends.
        options = {"room_options": RoomOptions(close_on_disconnect=False), "record": False, **options}
        await agents.start(agent, room=self.room, **options)
        self.session.on_interrupt = self._interrupt
        serving = asyncio.create_task(self._serve(), name=f"serve {self.session.live}")
        try:
            await self._until_over(serving)
        finally:
            self.session.on_interrupt = None
            await cancel(serving)
            agents.off("close", self._on_close)
            await agents.aclose()

    async def _until_over(self, serving: asyncio.Task[None]) -> None:
        place, session = self._place, self.session
        await first(session.stopping, place.superseded, place.disconnected, self._closed, tasks=(serving,))
        if serving.done():
            serving.result()
        if session.stopping.is_set():
            return
        if place.superseded.is_set() or place.disconnected.is_set():
            await place.give_up(session)
        elif self._closed.is_set():
            raise BotEnded(f"the agent of {session.live} has ended although the live goes on: {self._reason_closed}")

    # -- input

    async def _serve(self) -> None:
        async for item in self.session.inputs(auto_ack=False):
            if item.kind == "text" or (item.kind == "interrupt" and item.text.strip()):
                self._item = item
                if not item.text.strip() or await self._say(item):
                    self.session.ack(item)
                self._item = None
            else:
                self.session.ack(item)

    async def _say(self, item: Item) -> bool:
        """Say one item, to its end or until an interrupt. Return False if the live moves on before."""
        assert self._agents is not None
        if item.kind == "text" and self.session.interrupted.is_set():
            return True  # An interrupt that has arrived behind the item drops it.
        said = self._agents.say if self._pushed == "spoken" else self._answer
        speech = said(item.text)
        playing = asyncio.ensure_future(speech.wait_for_playout())
        try:
            while not playing.done() and not self.session.stopping.is_set():
                self.session.extend(TURN_S)
                await first(self.session.stopping, tasks=(playing,), within_s=EXTEND_EVERY_S)
        finally:
            done = playing.done()
            await cancel(playing)
        if done:
            self._keep()
            messages = (each for each in speech.chat_items if each.type == "message" and each.role == "assistant")
            texts = (each.text_content for each in messages)
            emit_heard(self.session, item.seq, " ".join(filter(None, texts)), cut=speech.interrupted)
        return bool(done)

    def _answer(self, text: str) -> Any:
        assert self._agents is not None
        return self._agents.generate_reply(user_input=text)

    def _interrupt(self) -> None:
        """Stop speaking, because an interrupt has arrived; the interrupt itself comes later, as an item."""
        if self._agents is not None and self._agents.current_speech is not None:
            self._agents.interrupt(force=True)

    # -- what was said

    def _on_said(self, event: Any) -> None:
        """Store a message that was heard. A message that belongs to an item is stored with the item's ack."""
        if self._item is None and self._keep():
            self.session.save_journal()
            if event.item.type == "message" and event.item.role == "assistant":
                emit_heard(self.session, 0, event.item.text_content or "", cut=event.item.interrupted)

    def _keep(self) -> bool:
        """Write new messages of the conversation to the journal; return whether there are any."""
        if self._memory is None or self._agents is None:
            return False
        known = {each["id"] for each in self._known}
        options = {"exclude_timestamp": False, "exclude_metrics": True, "exclude_config_update": True}
        items = self._agents.history.to_dict(**options)["items"]
        return self._memory.keep([*self._known, *(each for each in items if each["id"] not in known)])

    def _on_close(self, event: Any) -> None:
        self._reason_closed = str(event.error or event.reason.value)
        self._closed.set()


def without_content(item: Message) -> Message:
    """Return a part of a conversation without its content, which is too large to be stored."""
    short: Message = {
        name: item[name] for name in ("id", "type", "role", "name", "call_id", "created_at") if name in item
    }
    if item.get("type") == "function_call":
        return {**short, "arguments": "{}"}
    if item.get("type") == "function_call_output":
        return {**short, "output": TOO_LARGE, "is_error": False}
    return {**short, "content": [TOO_LARGE]}
