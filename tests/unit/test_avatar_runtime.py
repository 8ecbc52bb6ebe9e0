"""The avatar as a runtime: acks when it has spoken, stops when interrupted, shows nothing before the claim."""

from __future__ import annotations

import pytest

from tests.harness.avatar_extra import WAIT_S, require_avatar, until

require_avatar()

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import av
import numpy as np
from av.audio.codeccontext import AudioCodecContext

from dhsched import testing
from dhsched.avatar.clock import SLOT_S, SLOT_US
from dhsched.avatar.memory import LAST_CHARS_MAX, Memory, remembered
from dhsched.avatar.performance import Cue
from dhsched.avatar.runtime import Stage, avatar
from dhsched.avatar.studio import AvatarSettings
from dhsched.errors import BadSetting, RuntimeFailed
from dhsched.room.packets import AUDIO, CAPTION, VIDEO, Caption, Packet, read_caption
from dhsched.settings import settings_from
from dhsched.testing import ScriptedLive
from dhsched.worker import Publish, Session
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.runtimes import load_runtime
from tests.harness.room_server import Room, running

SMALL = AvatarSettings(size=64, fps=15)
LONG = "This is a long sentence that goes on and on, and nobody would want to hear the end of it today."


class Recorder:
    """An output that keeps everything, with how many acks there were when it came."""

    def __init__(self) -> None:
        self.connected = True
        self.packets: list[Packet] = []
        self.acked: list[int] = []
        self.live: ScriptedLive | None = None

    def put(self, packets: list[Packet]) -> None:
        self.packets += packets
        self.acked += [len(self.live.acks if self.live else ())] * len(packets)

    @property
    def captions(self) -> list[Caption]:
        return [read_caption(packet.payload) for packet in self.packets if packet.kind == CAPTION]

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


class Staged:
    """The avatar as a runtime whose output is recorded; without `plays`, it speaks nothing."""

    def __init__(self, *, plays: bool = True) -> None:
        self._plays = plays
        self.stage: Stage | None = None
        self.recorder = Recorder()

    async def __call__(self, session: Session) -> None:
        stage = self.stage = await Stage.ready(session, SMALL)
        session.on_interrupt = stage.interrupt
        tasks = [asyncio.create_task(stage.read())]
        await session.claimed.wait()
        if self._plays:
            tasks.append(asyncio.create_task(stage.play(self.recorder)))
        try:
            await session.stopping.wait()
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError | None) for result in results), results


@contextlib.asynccontextmanager
async def on_stage(staged: Staged) -> AsyncIterator[tuple[ScriptedLive, Recorder]]:
    async with testing.live(staged, digital_id="anna", wait_s=WAIT_S, teardown_s=WAIT_S) as live:
        staged.recorder.live = live
        yield live, staged.recorder


@contextlib.asynccontextmanager
async def whole(**how: Any) -> AsyncIterator[ScriptedLive]:
    async with testing.live(avatar, digital_id="anna", wait_s=WAIT_S, teardown_s=WAIT_S, **how) as live:
        yield live


async def test_an_item_is_acked_when_it_has_been_spoken_with_the_state_of_that_moment() -> None:
    async with on_stage(Staged()) as (live, recorder):
        await live.push("Good morning. How are you?")
        await live.push(" ... ")
        await live.push("Fine.")
        await live.acked(3)
        assert SessionInbox(live.session).busy(asyncio.get_running_loop().time()), "speaking is no stall"
    assert [n for n, _ in live.acks] == [1, 2, 3]
    states = [json.loads(saved or b"{}") for _, saved in live.acks]
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


async def test_an_interrupt_stops_the_voice_within_200_ms_of_media_time() -> None:
    async with on_stage(Staged()) as (live, recorder):
        await live.push(LONG)
        await live.push(LONG)
        await until(lambda: sum(p.kind == AUDIO for p in recorder.packets) > 60)
        at_us = recorder.packets[-1].pts_us
        await live.interrupt()
        await live.acked(3)
        assert live.acks == [(3, None)], "what it dropped is nothing that was spoken"
        told = [data for name, data in live.emits if name == "spoken"]
        assert {each["seq"] for each in told} == {1} and told[-1]["interrupt"] == 3
        assert [each["chars"] for each in told] == sorted(each["chars"] for each in told)
        assert 0 < told[-1]["chars"] < len(LONG)
        assert LONG[: told[-1]["chars"]].split() == LONG.split()[: len(LONG[: told[-1]["chars"]].split())], (
            "whole words"
        )
        shown = recorder.captions
        assert shown[-1] == Caption(1, LONG[: told[-1]["chars"]], cut=True), "cut where the application is told"
        assert [each.cut for each in shown[:-1]] == [False] * (len(shown) - 1) and {each.seq for each in shown} == {1}
        assert all(LONG.startswith(each.text) for each in shown) and len(shown) > 3, "word by word"
        await until(lambda: recorder.packets[-1].pts_us > at_us + 600_000)
        assert recorder.captions == shown, "nothing more of it is shown"
        await live.push("Yes?")
        await live.acked(4)
        assert recorder.captions[-1] == Caption(4, "Yes?")
    levels, high = recorder.loudness(), levels_high(recorder.loudness())
    assert max(level for slot, level in levels.items() if slot * SLOT_US < at_us) > high / 2
    quiet_from, quiet_to = at_us + 200_000, at_us + 600_000
    assert all(level < high / 50 for slot, level in levels.items() if quiet_from <= slot * SLOT_US <= quiet_to)
    assert json.loads(live.acks[1][1] or b"")["last"] == "Yes?", "and it goes on with what comes next"


async def test_pictures_begin_with_a_keyframe_and_one_comes_when_it_is_asked_for() -> None:
    staged = Staged()

    def pictures() -> list[Packet]:
        return [packet for packet in staged.recorder.packets if packet.kind == VIDEO]

    async with on_stage(staged):
        await until(lambda: len(pictures()) > 5)
        assert [packet.keyframe for packet in pictures()][:6] == [True] + [False] * 5
        assert staged.stage is not None
        staged.stage.want_keyframe()
        await until(lambda: sum(packet.keyframe for packet in pictures()) == 2)


async def test_pictures_that_take_too_long_are_left_out_and_reported_as_late(monkeypatch: pytest.MonkeyPatch) -> None:
    staged = Staged()
    async with on_stage(staged) as (live, _):
        assert staged.stage is not None
        studio, make = staged.stage.studio, staged.stage.studio.make

        def make_slowly(cue: Cue, *, keyframe: bool) -> list[Packet]:
            if cue.picture is not None:
                time.sleep(0.1)  # Longer than a frame: every second one is left out.
            return make(cue, keyframe=keyframe)

        monkeypatch.setattr(studio, "make", make_slowly)
        await live.push("Good morning.")
        await live.acked()
        assert live.late_s > SLOT_S, "the item is acked in its time, and some of it was not seen"


async def test_a_configuration_changes_voice_and_face_in_its_turn() -> None:
    async with on_stage(Staged()) as (live, recorder):
        await live.push("I am Anna.")
        await live.configure({"avatar": {"face": "ben", "voice": "ben", "background": "sand"}})
        await live.push("I am Ben.")
        await live.acked(3)
        await until(lambda: sum(packet.keyframe for packet in recorder.packets) >= 2)
    assert [n for n, _ in live.acks] == [1, 2, 3]
    second = [p for p in recorder.packets if p.keyframe][1]
    heard_before = [n for p, n in zip(recorder.packets, recorder.acked, strict=True) if p.pts_us <= second.pts_us]
    assert max(heard_before) >= 1, "the face changed after what was said before"


async def test_a_configuration_outlives_an_interrupt_that_comes_before_its_turn() -> None:
    staged = Staged(plays=False)
    async with on_stage(staged) as (live, _):
        await live.push(LONG)
        await live.configure({"avatar": {"face": "ben"}})
        # Nobody plays: the first one is not spoken, and the configuration, once read, has to wait behind it.
        await until(lambda: live.session.config)
        assert live.acks == [] and staged.stage is not None
        await live.interrupt()
        await live.acked(3)
        assert live.acks == [(3, None)]
        stage = staged.stage
        await until(lambda: stage.studio.face.name == "ben")


async def test_without_a_room_it_speaks_at_its_pace_and_stops_when_told() -> None:
    async with whole() as live:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await live.push("Hello.")
        await live.acked(1)
        assert loop.time() - began > 0.4, "it was spoken, not skipped"
        await live.push(LONG * 20)
        await asyncio.sleep(0.1)
    assert [n for n, _ in live.acks] == [1], "the long one was not spoken to its end"


async def test_it_publishes_to_the_room_from_the_claim_on() -> None:
    async with running(Room()) as room:
        saved = Memory(items=4, sentences=9, last="before").saved()
        async with whole(state=saved, publish=Publish(room.url, "secret")) as live:
            await until(lambda: len(room.tokens) == 1)
            prepared = await live.prepare()
            await asyncio.sleep(0.5)
            assert len(room.tokens) == 1, "prepared, it claims and publishes nothing"
            await live.move()
            await live.push("Here I am.")
            await live.acked()
            seen = len(room.frames)
            await until(lambda: sum(frame[0] == VIDEO for frame in room.frames[seen:]) > 5)
    assert [begin["epoch"] for begin in room.begins] == [1, prepared.generation.epoch]
    assert json.loads(live.acks[0][1] or b"")["sentences"] == 10, "it goes on from what was saved"
    first_video = next(frame for frame in room.frames if frame[0] == VIDEO)
    assert first_video[1] == 1, "a keyframe"
    assert sum(frame[0] == AUDIO for frame in room.frames) > 30


async def test_after_a_crash_the_avatar_says_again_what_was_not_said_to_its_end() -> None:
    async with whole() as live:
        await live.push("One.")
        await live.acked(1)
        await live.push("Two, and a little more than that.")
        await live.until(lambda: SessionInbox(live.session).accepted[0] == 2)
        await live.crash()
        await live.acked(2)
    states = [json.loads(saved or b"") for _, saved in live.acks]
    assert [state["items"] for state in states] == [1, 2] and len(live.sessions) == 2


async def test_a_voice_that_fails_ends_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dhsched.avatar.runtime.say", broken)
    with pytest.raises(RuntimeFailed, match="no breath"):
        async with whole() as live:
            await live.push("Hello.")
            await live.acked(1)


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
