"""The avatar as a runtime: acks when it has spoken, stops when interrupted, shows nothing before the claim."""

from __future__ import annotations

import pytest

from tests.harness.avatar_extra import WAIT_S, require_avatar, until

require_avatar()

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator

import av
import numpy as np
from av.audio.codeccontext import AudioCodecContext

from dhsched.avatar.clock import SLOT_US
from dhsched.avatar.memory import LAST_CHARS_MAX, Memory, remembered
from dhsched.avatar.runtime import Stage, avatar
from dhsched.avatar.studio import AvatarSettings
from dhsched.errors import BadSetting
from dhsched.room.packets import AUDIO, VIDEO, Packet
from dhsched.settings import settings_from
from dhsched.types import Generation
from dhsched.worker import Item, Publish, Session
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.runtimes import load_runtime
from tests.harness.room_server import Room, running

SMALL = AvatarSettings(size=64, fps=15)
LONG = "This is a long sentence that goes on and on, and nobody would want to hear the end of it today."


class Port:
    """The connection of a session: grants the claim, keeps the acks."""

    def __init__(self) -> None:
        self.acks: list[tuple[int, bytes | None]] = []
        self.publish: Publish | None = None
        self.saved = b""

    def claim(self, session: Session) -> None:
        session.publish = self.publish
        SessionInbox(session).begins_after(0, json.dumps(session.config).encode(), self.saved)

    def ack(self, session: Session, n: int, mark: bytes, saved: bytes | None) -> None:
        self.acks.append((n, saved))


class Recorder:
    """An output that keeps everything, with how many acks there were when it came."""

    def __init__(self, port: Port) -> None:
        self.connected = True
        self.packets: list[Packet] = []
        self.acked: list[int] = []
        self._port = port

    def put(self, packets: list[Packet]) -> None:
        self.packets += packets
        self.acked += [len(self._port.acks)] * len(packets)

    def loudness(self) -> dict[int, float]:
        """Of each slot of sound, decoded."""
        decoder = av.CodecContext.create("opus", "r")
        assert isinstance(decoder, AudioCodecContext)
        decoder.sample_rate, decoder.layout = 48_000, "mono"
        levels = {}
        for packet in self.packets:
            if packet.kind == AUDIO:
                frames = decoder.decode(av.Packet(packet.payload))
                levels[packet.pts_us // SLOT_US] = max((float(np.abs(f.to_ndarray()).max()) for f in frames), default=0)
        return levels


def text(seq: int, words: str) -> Item:
    return Item(seq, "text", words.encode(), True)


@pytest.fixture
def port() -> Port:
    return Port()


@pytest.fixture
def session(port: Port) -> Session:
    made = Session("t/a", Generation("w#1", 3), port, may_claim=True)
    made.digital_id = "anna"
    return made


@pytest.fixture
def inbox(session: Session) -> SessionInbox:
    return SessionInbox(session)


@contextlib.asynccontextmanager
async def on_stage(session: Session, port: Port) -> AsyncIterator[Recorder]:
    """The runtime with its output recorded."""
    recorder = Recorder(port)
    stage = await Stage.ready(session, SMALL)
    session.on_interrupt = stage.interrupt
    tasks = [asyncio.create_task(stage.read())]
    await until(session.claimed.is_set)
    tasks.append(asyncio.create_task(stage.play(recorder)))
    try:
        yield recorder
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results), results


async def test_an_item_is_acked_when_it_has_been_spoken_with_the_state_of_that_moment(
    session: Session, inbox: SessionInbox, port: Port
) -> None:
    async with on_stage(session, port) as recorder:
        inbox.accept(text(1, "Good morning. How are you?"))
        inbox.accept(text(2, " ... "))
        inbox.accept(text(3, "Fine."))
        await until(lambda: len(port.acks) == 3)
        assert inbox.busy(asyncio.get_running_loop().time()), "speaking is no stall"
    assert [n for n, _ in port.acks] == [1, 2, 3]
    states = [json.loads(saved or b"{}") for _, saved in port.acks]
    assert [state["sentences"] for state in states] == [2, 2, 3]
    assert states[0]["last"] == "Good morning. How are you?" and states[2]["items"] == 3
    levels = recorder.loudness()
    slot_of_ack = next(p.pts_us // SLOT_US for p, n in zip(recorder.packets, recorder.acked, strict=True) if n > 0)
    loud = [slot for slot, level in levels.items() if level > levels_high(levels) / 20]
    assert min(loud) + 50 < slot_of_ack, "more than a second was heard before the ack"
    slots = [*levels]
    assert slots == [*range(slots[0], slots[0] + len(slots))], "and no slot of it is missing"


def levels_high(levels: dict[int, float]) -> float:
    return max(levels.values())


async def test_an_interrupt_stops_the_voice_within_200_ms_of_media_time(
    session: Session, inbox: SessionInbox, port: Port
) -> None:
    async with on_stage(session, port) as recorder:
        inbox.accept(text(1, LONG))
        inbox.accept(text(2, LONG))
        await until(lambda: sum(p.kind == AUDIO for p in recorder.packets) > 60)
        at_us = recorder.packets[-1].pts_us
        inbox.accept(Item(9, "interrupt", b"", True))
        await until(lambda: port.acks)
        assert port.acks == [(9, None)], "what it dropped is nothing that was spoken"
        await until(lambda: recorder.packets[-1].pts_us > at_us + 600_000)
        inbox.accept(text(10, "Yes?"))
        await until(lambda: len(port.acks) == 2)
    levels, high = recorder.loudness(), levels_high(recorder.loudness())
    assert max(level for slot, level in levels.items() if slot * SLOT_US < at_us) > high / 2
    quiet_from, quiet_to = at_us + 200_000, at_us + 600_000
    assert all(level < high / 50 for slot, level in levels.items() if quiet_from <= slot * SLOT_US <= quiet_to)
    assert json.loads(port.acks[1][1] or b"")["last"] == "Yes?", "and it goes on with what comes next"


async def test_pictures_begin_with_a_keyframe_and_one_comes_when_it_is_asked_for(session: Session, port: Port) -> None:
    recorder = Recorder(port)
    stage = await Stage.ready(session, SMALL)
    playing = asyncio.create_task(stage.play(recorder))

    def pictures() -> list[Packet]:
        return [packet for packet in recorder.packets if packet.kind == VIDEO]

    try:
        await until(lambda: len(pictures()) > 5)
        assert [packet.keyframe for packet in pictures()][:6] == [True] + [False] * 5
        stage.want_keyframe()
        await until(lambda: sum(packet.keyframe for packet in pictures()) == 2)
    finally:
        playing.cancel()


async def test_a_configuration_changes_voice_and_face_in_its_turn(
    session: Session, inbox: SessionInbox, port: Port
) -> None:
    async with on_stage(session, port) as recorder:
        inbox.accept(text(1, "I am Anna."))
        config = b'{"avatar": {"face": "ben", "voice": "ben", "background": "sand"}}'
        inbox.accept(Item(2, "config", config, False, config))
        inbox.accept(text(3, "I am Ben."))
        await until(lambda: len(port.acks) == 3)
        await until(lambda: sum(packet.keyframe for packet in recorder.packets) >= 2)
    assert [n for n, _ in port.acks] == [1, 2, 3]
    second = [p for p in recorder.packets if p.keyframe][1]
    heard_before = [n for p, n in zip(recorder.packets, recorder.acked, strict=True) if p.pts_us <= second.pts_us]
    assert max(heard_before) >= 1, "the face changed after what was said before"


async def test_a_configuration_outlives_an_interrupt_that_comes_before_its_turn(
    session: Session, inbox: SessionInbox, port: Port
) -> None:
    stage = await Stage.ready(session, SMALL)
    session.on_interrupt = stage.interrupt
    reading = asyncio.create_task(stage.read())
    try:
        await until(session.claimed.is_set)
        config = b'{"avatar": {"face": "ben"}}'
        inbox.accept(text(1, LONG))
        inbox.accept(Item(2, "config", config, False, config))
        # Nobody plays: the first one is not spoken, and the configuration, once read, has to wait behind it.
        await until(lambda: session.config)
        assert port.acks == []
        inbox.accept(Item(3, "interrupt", b"", True))
        await until(lambda: port.acks == [(3, None)] and stage.studio.face.name == "ben")
    finally:
        reading.cancel()


async def test_without_a_room_it_speaks_at_its_pace_and_stops_when_told(
    session: Session, inbox: SessionInbox, port: Port
) -> None:
    inbox.accept(text(1, "Hello."))
    running_ = asyncio.create_task(avatar(session))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await until(lambda: port.acks)
    assert loop.time() - began > 0.4, "it was spoken, not skipped"
    inbox.accept(text(2, LONG * 20))
    await asyncio.sleep(0.1)
    inbox.close()
    await asyncio.wait_for(running_, WAIT_S)
    assert [n for n, _ in port.acks] == [1], "the long one was not spoken to its end"


async def test_it_publishes_to_the_room_from_the_claim_on(port: Port) -> None:
    session = Session("t/b", Generation("w#1", 7), port)
    inbox = SessionInbox(session)
    session.digital_id = "emi"
    async with running(Room()) as room:
        port.publish = Publish(room.url, "secret")
        port.saved = Memory(items=4, sentences=9, last="before").saved()
        running_ = asyncio.create_task(avatar(session))
        await asyncio.sleep(0.5)
        assert room.tokens == [], "prepared, it claims and publishes nothing"
        inbox.allow_claim()
        inbox.accept(text(1, "Here I am."))
        await until(lambda: port.acks and sum(frame[0] == VIDEO for frame in room.frames) > 5)
        inbox.close()
        await asyncio.wait_for(running_, WAIT_S)
    assert room.begins[0]["epoch"] == 7
    assert json.loads(port.acks[0][1] or b"")["sentences"] == 10, "it goes on from what was saved"
    first_video = next(frame for frame in room.frames if frame[0] == VIDEO)
    assert first_video[1] == 1, "a keyframe"
    assert sum(frame[0] == AUDIO for frame in room.frames) > 30


async def test_a_voice_that_fails_ends_the_runtime(
    session: Session, inbox: SessionInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = avatar(session)
    running_ = asyncio.create_task(stage)
    await until(session.claimed.is_set)
    monkeypatch.setattr("dhsched.avatar.runtime.say", broken)
    inbox.accept(text(1, "Hello."))
    with pytest.raises(RuntimeError, match="no breath"):
        await asyncio.wait_for(running_, WAIT_S)


async def broken(*_: object) -> None:
    raise RuntimeError("no breath")


def test_memory_is_small_and_anything_else_is_a_beginning() -> None:
    memory = Memory()
    for _ in range(1_000):
        memory.spoken("word " * 10_000, 3)
    assert len(memory.saved()) < 4_096 and len(memory.last) <= LAST_CHARS_MAX
    assert remembered(memory.saved()) == memory
    assert remembered(b"") == remembered(b"17") == remembered(b"\xff") == Memory()


def test_settings_come_from_the_environment_and_are_checked() -> None:
    assert settings_from(AvatarSettings, {}, {}) == AvatarSettings(size=320, fps=15)
    assert settings_from(AvatarSettings, {}, {"DHSCHED_AVATAR_SIZE": "512"}).size == 512
    for name, value in (("SIZE", "321"), ("SIZE", "20"), ("FPS", "90"), ("FPS", "many")):
        with pytest.raises(BadSetting, match=f"DHSCHED_AVATAR_{name}"):
            settings_from(AvatarSettings, {}, {f"DHSCHED_AVATAR_{name}": value})


def test_the_runtime_is_found_by_its_name() -> None:
    assert load_runtime("avatar") is avatar


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dhsched.worker.runtimes.AVATAR_NEEDS", ("av", "no_such_module_here"))
    with pytest.raises(BadSetting, match=r"no_such_module_here.*pip install 'dhsched\[avatar\]'"):
        load_runtime("avatar")


async def test_importing_dhsched_does_not_import_the_extra() -> None:
    code = "import sys, dhsched.cli, dhsched.worker; print([m for m in ('av', 'cv2', 'numpy') if m in sys.modules])"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(child.communicate(), WAIT_S)
    assert out.decode().strip() == "[]"
