"""One media clock over generations: monotonic, in step with the room's clock, one shift for both kinds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dhsched.room.media_clock import EARLY_MAX_US, LATE_MAX_US, WINDOW_US, MediaClock
from dhsched.room.packets import AUDIO, VIDEO

SLOT = 20_000


def play(clock: MediaClock, *, pts: int, now: int, slots: int, late: int = 0) -> list[tuple[int, int]]:
    """Audio and video in every slot: what was sent when, and its timestamp."""
    sent = []
    for n in range(slots):
        for kind in (AUDIO, VIDEO):
            at = clock.at(kind, pts + n * SLOT, now + n * SLOT + late)
            if at is not None and kind == AUDIO:
                sent.append((now + n * SLOT + late, at))
    return sent


def test_a_gap_is_as_long_in_the_timestamps_as_it_was() -> None:
    clock = MediaClock()
    clock.take_over(0, 5_000_000)
    sent = play(clock, pts=0, now=5_000_000, slots=100)
    clock.take_over(0, 8_500_000)
    sent += play(clock, pts=0, now=8_500_000, slots=100)
    assert all(now == at for now, at in sent)
    assert len(sent) == 200 and clock.sets == 0


def test_a_take_over_in_the_same_instant_goes_on_and_not_back() -> None:
    clock = MediaClock()
    clock.take_over(0, 0)
    last = play(clock, pts=0, now=0, slots=10)[-1][1]
    clock.take_over(0, last - 5_000)
    assert clock.at(VIDEO, 0, last - 5_000) == last + 1


def test_audio_and_video_are_moved_alike() -> None:
    clock = MediaClock()
    clock.take_over(40_000, 1_000_000)
    assert clock.at(VIDEO, 40_000, 1_000_000) == clock.at(AUDIO, 40_000, 1_001_000) == 1_000_000


def test_what_is_behind_is_dropped() -> None:
    clock = MediaClock()
    clock.take_over(0, 0)
    assert clock.at(AUDIO, SLOT, SLOT) == SLOT
    assert clock.at(AUDIO, SLOT, SLOT) is None
    assert clock.at(AUDIO, 0, SLOT) is None
    assert clock.at(AUDIO, 2 * SLOT, 2 * SLOT) == 2 * SLOT


def test_a_burst_after_a_stall_of_the_network_sets_nothing() -> None:
    """Late for a moment: the packets are all there, in a hurry, and then on time again."""
    clock = MediaClock()
    clock.take_over(0, 0)
    play(clock, pts=0, now=0, slots=25)
    for n in range(25, 50):
        assert clock.at(AUDIO, n * SLOT, 50 * SLOT) == n * SLOT
    sent = play(clock, pts=50 * SLOT, now=50 * SLOT, slots=100)
    assert clock.sets == 0 and all(now == at for now, at in sent)


def test_lateness_that_lasts_is_taken_out_once() -> None:
    clock = MediaClock()
    clock.take_over(0, 0)
    sent = play(clock, pts=0, now=0, slots=300, late=2 * LATE_MAX_US)
    assert clock.sets == 1
    assert all(now == at for now, at in sent[-100:])
    assert [at for _, at in sent] == sorted({at for _, at in sent})


def test_a_clock_that_runs_ahead_is_held() -> None:
    clock = MediaClock()
    clock.take_over(0, 0)
    assert clock.at(VIDEO, 3_600_000_000, SLOT) == SLOT
    assert clock.at(VIDEO, 3_600_000_000 + SLOT, 2 * SLOT) == 2 * SLOT and clock.sets == 1


@given(st.lists(st.tuples(st.sampled_from(("over", "audio", "video")), st.integers(0, 10**9), st.integers(0, 300_000))))
def test_timestamps_only_grow_and_stay_near_now(steps: list[tuple[str, int, int]]) -> None:
    clock, now, last = MediaClock(), 0, {AUDIO: -1, VIDEO: -1}
    clock.take_over(0, 0)
    for what, pts, passed in steps:
        now += passed
        if what == "over":
            clock.take_over(pts, now)
            continue
        kind = AUDIO if what == "audio" else VIDEO
        at = clock.at(kind, pts, now)
        if at is not None:
            assert at > last[kind]
            assert at <= now + EARLY_MAX_US + WINDOW_US
            last[kind] = at
