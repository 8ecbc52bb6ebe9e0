"""The avatar runtime: `dhsched run worker --runtime avatar`. One coroutine per live, as any runtime.

Two tasks run at once. One reads input, cuts it into pieces and turns them into sound a little ahead of what is heard;
the other goes from slot to slot of the media clock, has the studio make packets, and gives them to the publisher. An
item is acked when its last sample has been spoken, with the state of that moment. An interrupt stops the voice in the
next slot. At the ends of words and at an interrupt, `spoken` tells the application how much of an item was heard, and
a caption shows it to the room's viewers. A
prepared generation has its voice, face and encoders ready, and shows nothing until it is claimed.
"""

from __future__ import annotations

import asyncio
import zlib
from functools import partial
from typing import Protocol

import msgspec

from dhsched.avatar.clock import Due, Lateness, MediaClock
from dhsched.avatar.espeak import EspeakVoice
from dhsched.avatar.face import Face
from dhsched.avatar.memory import remembered
from dhsched.avatar.performance import Cue, Heard, Performance
from dhsched.avatar.persona import Persona, persona_of
from dhsched.avatar.publisher import Publisher
from dhsched.avatar.sentences import ends_in, pieces
from dhsched.avatar.speech import Utterance, say
from dhsched.avatar.studio import AvatarSettings, Studio, threads
from dhsched.room.packets import CAPTION, Caption, Packet
from dhsched.settings import settings_from
from dhsched.tasks import cancel, is_set_within
from dhsched.worker import Item, Session

AHEAD_S = 1.0  # With more queued sound than this, no further piece is made: no gaps, and little to throw away.
EXTEND_S = 15.0  # Beyond the queued sound, for a piece to be made on a busy machine; then it counts towards a stall.


class Output(Protocol):
    """The destination of packets. While it is not connected nothing is drawn or encoded."""

    @property
    def connected(self) -> bool:
        """Return whether packets reach anybody."""

    def put(self, packets: list[Packet]) -> None:
        """Send the packets of one slot, without waiting."""


class Nowhere:
    """The output without a room: the avatar speaks at its pace, and nobody sees it."""

    connected = False

    def put(self, packets: list[Packet]) -> None:
        """Drop the packets."""


async def avatar(session: Session) -> None:
    """Run one generation of one live, from its preparation to its end."""
    stage = await Stage.ready(session, settings_from(AvatarSettings, {}))
    session.on_interrupt = stage.interrupt
    reading = asyncio.create_task(stage.read(), name=f"read {session.live}")
    playing = asyncio.create_task(stage.show(), name=f"show {session.live}")
    tasks = (reading, playing, asyncio.create_task(session.stopping.wait()))
    try:
        # Playing ends only with an error; reading may be in the middle of a long text when the live moves on.
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        session.on_interrupt = None
        await cancel(*tasks)


class Stage:
    """One live being performed."""

    def __init__(self, session: Session, studio: Studio) -> None:
        self.session = session
        self.performance = Performance(seed=zlib.crc32(session.live.encode()), fps=studio.settings.fps)
        self.studio = studio
        self._memory = remembered(session.state)
        self._interrupts = 0
        self._heard: tuple[Item, int] | None = None  # The item that is being spoken, and how many characters of it.
        self._caption: Caption | None = None  # What of the present sentence has been heard.
        self._output: Output = Nowhere()
        self._pts_us = 0
        self._keyframe = True
        self._lateness = Lateness()
        self._wake = asyncio.Event()  # Set when an idle face has something to show before its next slot.
        self._hungry = asyncio.Event()  # Set when at most AHEAD_S of speech is left.

    @classmethod
    async def ready(cls, session: Session, settings: AvatarSettings) -> Stage:
        """Do everything that takes long, without claiming anything."""
        persona = persona_of(session.digital_id, session.metadata, session.config)

        def build() -> Studio:
            studio = Studio(persona, settings)
            studio.warm()
            return studio

        studio = await asyncio.get_running_loop().run_in_executor(threads(), build)
        await say(EspeakVoice(persona.voice), "a")
        return cls(session, studio)

    # -- input

    async def read(self) -> None:
        """Turn input into lines, a little ahead of what is heard, until the live moves on."""
        session = self.session
        async for item in session.inputs(auto_ack=False):
            if item.kind == "text":
                await self._say(item)
            elif item.kind == "config":
                await self._take_config(item)
            else:
                # The voice has stopped already. A configuration that the interrupt overtook is still the live's own.
                session.ack(item)
                self._wear(await self._face())

    def interrupt(self) -> None:
        """Stop the voice as soon as an interrupt arrives, whatever the reader is doing."""
        self._interrupts += 1
        self.performance.tell_heard()
        self.session.spoken(*self._heard or (None,))
        if self._heard is not None and self._caption is not None and self._heard[1] < len(self._heard[0].text):
            self._show_caption(msgspec.structs.replace(self._caption, cut=True))
        self._heard = self._caption = None
        self.performance.hush()
        self._hungry.set()
        self._wake.set()

    async def _say(self, item: Item) -> None:
        """Speak all pieces of one item. An interrupt drops the rest of it."""
        interrupts, sentences = self._interrupts, 0
        voice = EspeakVoice(self._persona().voice)
        end = 0
        for piece in pieces(item.text):
            await self._until_hungry()
            utterance = await say(voice, piece)
            if interrupts != self._interrupts:
                return
            sentences += 1
            ends = ends_in(item.text, piece, end)
            end = ends[-1]
            self._speak(utterance, partial(self._hear, item, piece, ends))
        self.performance.mark(lambda: self._spoken(item, sentences))
        self._wake.set()

    def _speak(self, utterance: Utterance, heard: Heard) -> None:
        self.performance.say(utterance, partial(heard, len(utterance.text)), heard)
        self.session.extend(self.performance.left_s + EXTEND_S)
        self._wake.set()

    async def _until_hungry(self) -> None:
        while self.performance.left_s > AHEAD_S:
            self._hungry.clear()
            await self._hungry.wait()

    def _hear(self, item: Item, piece: str, ends: list[int], chars: int) -> None:
        """Note how much of the item has been heard; tell the application now and then, and the viewers each word."""
        heard = (item, ends[chars])
        if heard != self._heard:
            self._heard = heard
            self._caption = Caption(item.seq, piece[:chars])
            if not self.session.interrupted.is_set():
                self.session.spoken(*heard)
                self._show_caption(self._caption)

    def _show_caption(self, caption: Caption) -> None:
        self._output.put([Packet(CAPTION, False, self._pts_us, msgspec.json.encode(caption))])

    def _spoken(self, item: Item, sentences: int) -> None:
        # An interrupt that comes before the ack drops the item: then this says that it was heard.
        self._heard = (item, len(item.text))
        self._memory.spoken(item.text, sentences)
        self.session.state = self._memory.saved()
        self.session.ack(item)

    async def _take_config(self, item: Item) -> None:
        """Apply a configuration: the voice from the next item on, the face when earlier speech has been heard."""
        face = await self._face()

        def apply() -> None:
            self._wear(face)
            self.session.ack(item)

        self.performance.mark(apply)
        self._wake.set()

    def _persona(self) -> Persona:
        session = self.session
        return persona_of(session.digital_id, session.metadata, session.config)

    async def _face(self) -> Face:
        """Return the face of the current configuration; painting a face that is new here takes a while."""
        persona, size = self._persona(), self.studio.settings.size
        return await asyncio.get_running_loop().run_in_executor(threads(), Face, persona.face, persona.background, size)

    def _wear(self, face: Face) -> None:
        worn = self.studio.face
        if (face.name, face.background) != (worn.name, worn.background):
            self.studio.face = face
            self.want_keyframe()

    # -- output

    async def show(self) -> None:
        """Publish from the claim on, to the room that the claim names."""
        session = self.session
        await session.claimed.wait()
        # The claimed state may be newer than the one at the preparation.
        self._memory = remembered(session.state)
        self._wear(await self._face())
        if session.publish is None:
            await self.play(Nowhere())
            return
        publisher = Publisher(
            live=session.live,
            epoch=session.generation.epoch,
            where=lambda: session.publish,
            on_keyframe=self.want_keyframe,
            video=self.studio.settings.video,
        )
        publisher.start()
        try:
            await self.play(publisher)
        finally:
            await publisher.close()

    def want_keyframe(self) -> None:
        self._keyframe = True
        self.performance.want_picture()
        self._wake.set()

    async def play(self, output: Output) -> None:
        """Play slot by slot, for ever."""
        self._output = output
        loop = asyncio.get_running_loop()
        clock, last = MediaClock(loop.time()), -1
        while True:
            now = loop.time()
            self._wake.clear()
            slot = self.performance.next_slot(last, clock.slot_at(now), seen=output.connected)
            due = clock.due(slot, now)
            if due.wait_s > 0 and await self._woken_within(due.wait_s):
                continue
            last = slot
            await self._step(slot, due, output)

    async def _woken_within(self, wait_s: float) -> bool:
        """Sleep to the deadline; return True if input woke an idle face first. A speaking face is not woken."""
        if self.performance.speaking:
            await asyncio.sleep(wait_s)
            return False
        return await is_set_within(wait_s, self._wake)

    async def _step(self, slot: int, due: Due, output: Output) -> None:
        cue = self.performance.cue(slot, pictures=output.connected and not due.frame_too_late)
        self._pts_us = cue.pts_us
        if output.connected:
            self.session.late(self._lateness.of_slot(due, picture=cue.picture is not None, left_out=cue.left_out))
            output.put(await self._packets(cue))
        else:
            await asyncio.sleep(0)  # A late slot is not waited for, so let other tasks run.
        for done in cue.spoken:
            done()
        self.performance.tell_heard()
        if self.performance.left_s <= AHEAD_S:
            self._hungry.set()

    async def _packets(self, cue: Cue) -> list[Packet]:
        """Return the packets of a cue. Pictures are made in a thread: many of them would delay the loop."""
        if cue.picture is None:
            await asyncio.sleep(0)
            return self.studio.make(cue, keyframe=False)
        keyframe, self._keyframe = self._keyframe, False
        make = partial(self.studio.make, cue, keyframe=keyframe)
        packets = await asyncio.get_running_loop().run_in_executor(threads(), make)
        if keyframe and not any(packet.keyframe for packet in packets):
            self.want_keyframe()  # The encoder left the frame out.
        return packets
