"""Poses, pictures, packets: what is seen."""

from __future__ import annotations

import pytest

from tests.harness.avatar_extra import require_avatar

require_avatar()

from itertools import pairwise

import av
import numpy as np
from av.audio.codeccontext import AudioCodecContext
from av.video.codeccontext import VideoCodecContext
from numpy.typing import NDArray

from dhsched.avatar.encode import AudioEncoder, VideoEncoder
from dhsched.avatar.face import Face
from dhsched.avatar.features import CAVITY
from dhsched.avatar.looks import BACKGROUNDS, FACES
from dhsched.avatar.persona import Persona, persona_of
from dhsched.avatar.pose import BLINK_EVERY_S, Pose, blink_at, pose_at
from dhsched.avatar.visemes import REST, VISEMES
from dhsched.room.packets import Packet, read_packet, write_packet

SIZE = 320
Picture = NDArray[np.uint8]


@pytest.fixture(scope="module")
def face() -> Face:
    return Face("anna", "dusk", SIZE)


def part(picture: Picture, left: float, top: float, right: float, bottom: float) -> Picture:
    """A part of the picture, given in units of the design."""
    scale = SIZE / 320
    return picture[int(top * scale) : int(bottom * scale), int(left * scale) : int(right * scale)]


def mouth_hole(picture: Picture) -> int:
    """Pixels of the colour that is nowhere but inside a mouth."""
    away = np.abs(part(picture, 130, 190, 190, 235).astype(int) - CAVITY).max(axis=2)
    return int(np.sum(away < 12))


def eye_white(picture: Picture) -> int:
    return int(np.sum(part(picture, 110, 130, 150, 160).min(axis=2) > 200))


# -- poses


def test_a_pose_is_the_same_for_the_same_time_and_seed() -> None:
    assert pose_at(12.34, 5, 0.2) == pose_at(12.34, 5, 0.2)
    assert pose_at(12.34, 5) != pose_at(12.34, 6)


@pytest.mark.parametrize("seed", [0, 1, 99])
def test_everybody_blinks_now_and_then_and_briefly(seed: int) -> None:
    times = np.arange(0, 20 * BLINK_EVERY_S, 0.01)
    lids = np.array([blink_at(float(t), seed) for t in times])
    begins = int(np.sum((lids[1:] > 0) & (lids[:-1] == 0)))
    assert 20 <= begins <= 40 and lids.max() > 0.95
    assert np.mean(lids > 0.5) < 0.06, "eyes are open nearly always"


def test_a_head_moves_smoothly_and_stays_in_the_picture() -> None:
    poses = [pose_at(n / 15, 3, 1.0) for n in range(15 * 60)]
    assert all(abs(pose.x) < 6 and abs(pose.y) < 6 and abs(pose.tilt) < 3 for pose in poses)
    assert all(-1 <= pose.gaze_x <= 1 and -1 <= pose.gaze_y <= 1 and 0 <= pose.blink <= 1 for pose in poses)
    assert max(abs(a.x - b.x) for a, b in pairwise(poses)) < 1.2
    assert len({round(pose.gaze_x, 2) for pose in poses}) > 5, "it looks around"


# -- pictures


def test_the_same_pose_and_mouth_give_the_same_pixels(face: Face) -> None:
    pose, mouth = pose_at(3.3, 1), VISEMES["OO"].mouth
    first = face.draw(pose, mouth).copy()
    face.draw(pose_at(9.9, 2), VISEMES["AA"].mouth)
    assert np.array_equal(face.draw(pose, mouth), first), "nothing of another frame is left"
    assert np.array_equal(Face("anna", "dusk", SIZE).draw(pose, mouth), first)


def test_the_mouth_opens_with_its_viseme(face: Face) -> None:
    holes = {name: mouth_hole(face.draw(Pose(), VISEMES[name].mouth)) for name in ("rest", "PP", "SS", "EE", "AA")}
    assert holes["rest"] == holes["PP"] == 0
    assert holes["AA"] > holes["EE"] > 0
    assert holes["AA"] > 100


def test_an_open_mouth_takes_the_chin_down(face: Face) -> None:
    shut, opened = face.draw(Pose(), REST).copy(), face.draw(Pose(), VISEMES["AA"].mouth).copy()
    below = part(shut, 140, 232, 180, 244).astype(int) - part(opened, 140, 232, 180, 244)
    assert np.abs(below).mean() > 4
    assert np.array_equal(part(shut, 100, 60, 220, 180), part(opened, 100, 60, 220, 180)), "and nothing above it"


def test_a_blink_shuts_the_eyes(face: Face) -> None:
    opened, half, shut = (eye_white(face.draw(Pose(blink=blink))) for blink in (0.0, 0.5, 1.0))
    assert opened > half > shut == 0


def test_eyes_follow_the_gaze_and_the_head_its_pose(face: Face) -> None:
    straight = face.draw(Pose()).copy()
    aside = face.draw(Pose(gaze_x=1.0)).copy()
    assert not np.array_equal(part(straight, 105, 130, 215, 160), part(aside, 105, 130, 215, 160))
    assert np.array_equal(part(straight, 100, 60, 220, 100), part(aside, 100, 60, 220, 100))
    moved = face.draw(Pose(x=4.0))
    assert np.abs(part(moved, 60, 40, 260, 240).astype(int) - part(straight, 60, 40, 260, 240)).mean() > 1
    assert np.array_equal(moved[-8:], straight[-8:]), "shoulders stand still"


@pytest.mark.parametrize("name", FACES)
def test_every_face_can_be_drawn_at_any_size(name: str) -> None:
    for size, background in zip((64, 128), BACKGROUNDS, strict=False):
        picture = Face(name, background, size).draw_i420(pose_at(1.0, 1), VISEMES["II"].mouth)
        assert picture.shape == (size * 3 // 2, size)
        assert picture[:size].std() > 20, "there is something to see"


def test_a_pose_out_of_the_picture_is_cut_off(face: Face) -> None:
    face.draw(Pose(x=400.0, y=-400.0))


# -- who


def test_a_digital_id_chooses_and_the_configuration_may_choose_otherwise() -> None:
    assert persona_of("ben").face == "ben" and persona_of("ben").voice == "ben"
    assert persona_of("demo") == persona_of("demo")
    assert len({persona_of(f"somebody-{n}") for n in range(200)}) > 20
    asked = persona_of("ben", {"avatar": {"background": "sand"}}, {"avatar": {"voice": "de", "face": "emi"}})
    assert asked == Persona("de", "emi", "sand")


@pytest.mark.parametrize(
    "wish",
    [{}, {"avatar": 3}, {"avatar": {"face": "nobody"}}, {"avatar": {"face": {}, "size": 9}}, {"other": {}}],
)
def test_what_is_not_understood_changes_nothing(wish: dict[str, object]) -> None:
    assert persona_of("ben", wish) == persona_of("ben")


# -- packets


@pytest.mark.parametrize("codec", ["vp8", "h264"])
def test_pictures_decode_and_keyframes_come_when_asked_for(face: Face, codec: str) -> None:
    encoder, decoder = VideoEncoder(SIZE, 15, codec), av.CodecContext.create(codec, "r")
    assert isinstance(decoder, VideoCodecContext)
    keyframes = []
    for n in range(20):
        picture = face.draw(pose_at(n / 15, 1), VISEMES["AA" if n % 4 else "PP"].mouth).copy()
        planes = face.draw_i420(pose_at(n / 15, 1), VISEMES["AA" if n % 4 else "PP"].mouth)
        packet = encoder.encode(planes, n * 66_667, keyframe=n in (0, 13))
        assert packet is not None and packet.pts_us == n * 66_667
        if packet.keyframe:
            keyframes.append(n)
        assert read_packet(write_packet(packet), codec) == packet, "the flag is the frame's own"
        (frame,) = decoder.decode(av.Packet(packet.payload))
        error = np.abs(frame.to_ndarray(format="bgr24").astype(int) - picture).mean()
        assert error < 6, "it is the same picture"
    assert keyframes == [0, 13]


def test_sound_decodes_and_a_pause_is_silence() -> None:
    encoder = AudioEncoder()
    tone = (9_000 * np.sin(2 * np.pi * 300 * np.arange(48_000) / 48_000)).astype(np.int16)
    packets = [encoder.encode(tone[at : at + 960], at) for at in range(0, 48_000, 960)]
    packets += [encoder.encode(np.zeros(960, np.int16), 0) for _ in range(15)]
    pauses = encoder.pause(0)
    assert len(pauses[-1].payload) == 1
    sound = decoded([packet for packet in packets if packet] + pauses * 3)
    loud = float(np.abs(sound[10_000:40_000]).max())
    assert loud > 0
    spectrum = np.abs(np.fft.rfft(sound[:48_000].astype(float)))
    assert int(np.argmax(spectrum)) == pytest.approx(300, abs=2)
    assert float(np.abs(sound[-960:]).max()) < loud / 100


def test_a_pause_is_silence_where_the_end_of_a_sentence_was_lost() -> None:
    encoder = AudioEncoder()
    noise = (np.random.default_rng(1).normal(0, 4_000, 48_000)).astype(np.int16)
    heard = [packet for at in range(0, 48_000, 960) if (packet := encoder.encode(noise[at : at + 960], at))]
    for _ in range(15):
        encoder.encode(np.zeros(960, np.int16), 0)
    pause = encoder.pause(0)
    waiting = [pause[-1]] * 19  # A receiver makes sound of its own until the next pause comes.
    sound = decoded(heard + (pause + waiting) * 3)
    loud = float(np.abs(sound[10_000:40_000]).max())
    assert float(np.abs(sound[-960:]).max()) < loud / 1_000


def decoded(packets: list[Packet]) -> NDArray[np.float64]:
    decoder = av.CodecContext.create("libopus", "r")
    assert isinstance(decoder, AudioCodecContext)
    decoder.sample_rate, decoder.layout = 48_000, "mono"
    frames = [frame for packet in packets for frame in decoder.decode(av.Packet(packet.payload))]
    return np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames]).astype(float)
