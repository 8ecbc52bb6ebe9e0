"""One media clock with absolute deadlines, and what a performance puts into each of its slots."""

from __future__ import annotations

import pytest

from tests.harness.avatar_extra import require_avatar

require_avatar()

import numpy as np

from dhsched.avatar.clock import FRAME_LATE_S, RESET_S, SAMPLES_PER_SLOT, SLOT_S, Due, Lateness, MediaClock
from dhsched.avatar.performance import PAUSE_EVERY_SLOTS, TAIL_SLOTS, Cue, Performance
from dhsched.avatar.speech import Utterance
from dhsched.avatar.visemes import Sound


def spoken(slots: float, level: int = 4_000) -> Utterance:
    """So many slots of a hum with its mouth open."""
    count = round(slots * SAMPLES_PER_SLOT)
    return Utterance("ah", np.full(count, level, np.int16), (Sound(0.0, "ɑ"),))


def heard(cue: Cue) -> bool:
    return cue.samples is not None and bool(np.any(cue.samples))


# -- the clock


def test_deadlines_are_absolute_so_nothing_drifts() -> None:
    """Each slot is entered 3 ms late; a clock that slept for 20 ms each time would be 3 s behind after 1,000."""
    clock, now = MediaClock(100.0), 100.0
    for slot in range(1_000):
        due = clock.due(slot, now)
        now += due.wait_s + 0.003
    assert now == pytest.approx(100.0 + 999 * SLOT_S + 0.003)
    assert clock.resets == 0


def test_a_slot_that_is_a_little_late_is_made_up() -> None:
    clock = MediaClock(0.0)
    late = clock.due(10, 0.25)
    assert late.wait_s == 0 and late.late_s == pytest.approx(0.05) and not late.frame_too_late
    assert clock.due(10, 0.27).frame_too_late, "a picture that late is left out, the sound is not"
    assert clock.due(13, 0.25).wait_s == pytest.approx(0.01), "what follows keeps its time"
    assert clock.resets == 0


def test_past_the_limit_the_clock_starts_again_from_here() -> None:
    clock = MediaClock(0.0)
    held_up = 10 * SLOT_S + RESET_S + 0.5
    due = clock.due(10, held_up)
    assert (due.wait_s, due.late_s) == (0, 0) and due.stood_s == pytest.approx(RESET_S + 0.5)
    assert clock.resets == 1
    assert clock.due(11, held_up).wait_s == pytest.approx(SLOT_S), "media time stood still; nothing is hurried"
    assert clock.slot_at(held_up) == 10


def test_a_picture_that_was_due_is_left_out() -> None:
    performance = Performance(seed=1, fps=15)
    performance.say(spoken(10), lambda: None)
    first, second = performance.cue(0, pictures=False), performance.cue(1)
    assert first.left_out and first.picture is None
    assert not second.left_out and second.picture is not None, "it was wanted, and is still"
    assert not performance.cue(2, pictures=False).left_out, "no frame is due in this slot"


def test_a_slot_is_late_while_a_picture_is_missing_and_after_a_standstill() -> None:
    lateness, in_time, late = Lateness(), Due(0.01, 0.0), Due(0.0, FRAME_LATE_S + 0.01)
    assert lateness.of_slot(in_time, picture=True, left_out=False) == 0
    assert lateness.of_slot(late, picture=False, left_out=False) == 0, "its sound is late, but not left out"
    assert lateness.of_slot(late, picture=False, left_out=True) == SLOT_S
    assert lateness.of_slot(in_time, picture=False, left_out=False) == SLOT_S, "the picture is still missing"
    assert lateness.of_slot(in_time, picture=True, left_out=False) == 0
    assert lateness.of_slot(Due(0.0, 0.0, stood_s=0.3), picture=True, left_out=False) == 0.3


# -- the performance


def play(performance: Performance, last: int, slots: int) -> tuple[list[Cue], int]:
    """As the runtime does it on a machine that is never late."""
    cues = []
    end = last + slots
    while (slot := performance.next_slot(last, last + 1)) <= end:
        cues.append(performance.cue(slot))
        last = slot
    return cues, last


def test_lines_follow_one_another_without_a_gap_and_are_done_at_their_last_sample() -> None:
    performance, done = Performance(seed=1, fps=15), list[str]()
    performance.say(spoken(2.5), lambda: done.append("one"))
    performance.mark(lambda: done.append("mark"))
    performance.say(spoken(1.5), lambda: done.append("two"))
    assert performance.left_s == pytest.approx(4 * SLOT_S)
    for expected in ([], [], ["one", "mark"], ["two"], []):
        cue = performance.cue(performance.next_slot(-1, 0))
        assert (cue.samples is not None and cue.samples.all()) == (expected != [] or performance.left_s > 0)
        done.clear()
        for each in cue.spoken:
            each()
        assert done == expected


def test_a_mark_with_nothing_before_it_is_done_at_once() -> None:
    performance, done = Performance(seed=1, fps=15), list[int]()
    _, last = play(performance, -1, 200)
    performance.mark(lambda: done.append(1))
    cue = performance.cue(performance.next_slot(last, last + 1))
    assert cue.slot == last + 1 and [each() for each in cue.spoken] == [None] and done == [1]


def test_hush_fades_within_one_slot_and_drops_what_waits() -> None:
    performance = Performance(seed=1, fps=15)
    performance.say(spoken(100), lambda: pytest.fail("it was never spoken to its end"))
    performance.say(spoken(100), lambda: pytest.fail("it was never heard at all"))
    cues, last = play(performance, -1, 10)
    assert all(heard(cue) for cue in cues)
    performance.hush()
    (fading, *after), _ = play(performance, last, 40)
    assert fading.samples is not None
    assert fading.samples[0] > 3_900 and abs(fading.samples[-1]) < 50, "no click"
    assert not any(heard(cue) for cue in after)
    assert performance.left_s == 0


def test_speech_leaves_no_slot_out_and_an_idle_face_takes_up_from_the_present() -> None:
    performance = Performance(seed=1, fps=15)
    assert performance.next_slot(-1, 0) == 0
    performance.say(spoken(10), lambda: None)
    performance.cue(0)
    assert performance.next_slot(0, 9) == 1, "late, and the sound is kept"
    _, last = play(performance, 0, 10 + TAIL_SLOTS + 30)
    assert performance.next_slot(last, last + 500) >= last + 500
    performance.say(spoken(10), lambda: None)
    assert performance.next_slot(last, last + 500) == last + 500, "nor does speech begin in the past"


def test_while_idle_there_is_little_to_do() -> None:
    performance = Performance(seed=7, fps=15)
    _, last = play(performance, -1, 50)
    cues, _ = play(performance, last, 50 * 60)
    frames = sum(cue.picture is not None for cue in cues) / 60
    assert 5 <= frames < 7, "five a second, and some more for each blink"
    assert sum(cue.pause for cue in cues) == pytest.approx(50 * 60 / PAUSE_EVERY_SLOTS, abs=1)
    assert all(cue.samples is None for cue in cues)
    blinks = {round(cue.picture[0].blink, 1) for cue in cues if cue.picture}
    assert max(blinks) > 0.8, "a blink is seen in spite of the low rate"


def test_while_speaking_the_frame_rate_is_whole_and_the_mouth_moves() -> None:
    performance = Performance(seed=1, fps=15)
    performance.say(spoken(100), lambda: None)
    cues, _ = play(performance, -1, 100)
    pictures = [cue.picture for cue in cues if cue.picture]
    assert len(pictures) == 30
    assert max(mouth.open for _, mouth in pictures) > 0.8
    assert all(cue.samples is not None for cue in cues)


def test_a_picture_that_is_left_out_or_asked_for_comes_next() -> None:
    performance = Performance(seed=1, fps=15)
    _, last = play(performance, -1, 100)
    performance.want_picture()
    slot = performance.next_slot(last, last + 1)
    assert slot == last + 1
    assert performance.cue(slot, pictures=False).picture is None
    assert performance.cue(performance.next_slot(slot, slot + 1)).picture is not None


def test_a_face_that_nobody_sees_wakes_up_rarely() -> None:
    performance = Performance(seed=1, fps=15)
    _, last = play(performance, -1, 100)
    assert performance.next_slot(last, last + 1, seen=False) >= last + 50
