"""The fence of output: who may publish, what passes, who takes over and when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dhsched.room.fence import SILENCE_MAX_S, Admitted, Fence, NeverIssued, Superseded, Verdict, admit, hear, join
from dhsched.room.fence import must_ask_again as ask_again
from dhsched.types import Generation

A1, B2, C3 = Generation("a#1", 1), Generation("b#2", 2), Generation("c#3", 3)


def test_only_the_current_generation_is_admitted() -> None:
    assert admit(Fence(), B2, B2) == Admitted()
    assert admit(Fence(), A1, B2) == Superseded(2)
    assert isinstance(admit(Fence(), C3, B2), NeverIssued), "an epoch that was never issued"
    assert isinstance(admit(Fence(), Generation("x#9", 2), B2), NeverIssued), "another Worker's epoch"


def test_an_answer_that_was_late_does_not_let_a_lower_one_in() -> None:
    """Dispatch said that 1 is current; before its answer was here, 2 had published."""
    assert admit(Fence(highest=2, on_air=2), A1, A1) == Superseded(2)


def test_a_room_that_remembers_nothing_admits_no_zombie() -> None:
    """After a restart, whoever comes first: what Dispatch says decides."""
    assert admit(Fence(), A1, C3) == Superseded(3)


def test_a_new_generation_takes_over_at_its_first_keyframe() -> None:
    fence, verdict = hear(Fence(), 1, keyframe=False)
    assert verdict is Verdict.WAIT
    fence, verdict = hear(fence, 1, keyframe=True)
    assert verdict is Verdict.TAKE_OVER
    fence, verdict = hear(fence, 1, keyframe=False)
    assert verdict is Verdict.FORWARD
    fence, verdict = hear(fence, 1, keyframe=True)
    assert verdict is Verdict.FORWARD
    fence, verdict = hear(fence, 2, keyframe=False)
    assert (fence, verdict) == (Fence(highest=2, on_air=1), Verdict.WAIT)
    assert hear(fence, 1, keyframe=True) == (fence, Verdict.STALE), "2 has published: 1 is over, for good"
    fence, verdict = hear(fence, 2, keyframe=True)
    assert (fence, verdict) == (Fence(highest=2, on_air=2), Verdict.TAKE_OVER)


def test_a_new_connection_of_the_generation_on_air_needs_a_keyframe() -> None:
    fence = join(Fence(highest=2, on_air=2), 2)
    assert fence == Fence(highest=2, on_air=0)
    assert hear(fence, 2, keyframe=False)[1] is Verdict.WAIT
    assert hear(fence, 2, keyframe=True)[1] is Verdict.TAKE_OVER


def test_a_new_generation_that_only_connects_takes_nothing_from_the_one_on_air() -> None:
    fence = join(Fence(highest=1, on_air=1), 2)
    assert hear(fence, 1, keyframe=False)[1] is Verdict.FORWARD


def test_who_was_silent_is_asked_about() -> None:
    assert not ask_again(SILENCE_MAX_S)
    assert ask_again(SILENCE_MAX_S + 0.001)


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=60))
def test_what_passes_never_goes_back(packets: list[tuple[int, bool]]) -> None:
    fence, passed, seen = Fence(), [0], 0
    for epoch, keyframe in packets:
        fence, verdict = hear(fence, epoch, keyframe=keyframe)
        if verdict in (Verdict.TAKE_OVER, Verdict.FORWARD):
            assert epoch >= max(passed[-1], seen)
            assert keyframe or epoch == passed[-1], "a generation begins with a keyframe"
            passed.append(epoch)
        assert (verdict is Verdict.STALE) == (epoch < seen)
        seen = max(seen, epoch)
