"""The fence of output: who may publish, what passes, who takes over and when, and what another home changes.

test_room_fence_mutants.py breaks the fence in many ways; each time one of these tests must fail.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhsched.room.fence import (
    SILENCE_MAX_S,
    Admitted,
    Fence,
    NeverIssued,
    Superseded,
    Verdict,
    admit,
    end,
    hear,
    join,
    leave,
    must_ask,
)
from dhsched.types import Generation

A1, B2, C3 = Generation("a#1", 1), Generation("b#2", 2), Generation("c#3", 3)


def at(home: str = "h1", highest: int = 0, admitted: tuple[int, ...] = (), on_air: int = 0) -> Fence:
    return Fence(home, highest, frozenset(admitted), on_air)


def test_only_the_current_generation_is_admitted() -> None:
    assert admit(at(), B2, B2, home="h1") == (at(admitted=(2,)), Admitted())
    assert admit(at(), A1, B2, home="h1") == (at(), Superseded(2))
    for never in (C3, Generation(B2.worker, 3), Generation("x#9", 2)):
        fence, verdict = admit(at(), never, B2, home="h1")
        assert fence == at() and isinstance(verdict, NeverIssued), "a number or a Worker that was never issued"


def test_an_answer_that_was_late_does_not_let_a_lower_one_in() -> None:
    """Dispatch said that 1 is current; before its answer was here, 2 had published."""
    assert admit(at(highest=2, on_air=2), A1, A1, home="h1")[1] == Superseded(2)


def test_a_room_that_remembers_nothing_admits_no_zombie() -> None:
    """After a restart, whoever comes first: what Dispatch says decides."""
    assert admit(Fence(), A1, C3, home="h1")[1] == Superseded(3)


def test_a_new_generation_takes_over_at_its_first_keyframe() -> None:
    fence, verdict = hear(at(admitted=(1, 2)), 1, keyframe=False)
    assert verdict is Verdict.WAIT
    fence, verdict = hear(fence, 1, keyframe=True)
    assert verdict is Verdict.TAKE_OVER
    fence, verdict = hear(fence, 1, keyframe=False)
    assert verdict is Verdict.FORWARD
    fence, verdict = hear(fence, 1, keyframe=True)
    assert verdict is Verdict.FORWARD
    fence, verdict = hear(fence, 2, keyframe=False)
    assert (fence, verdict) == (at(highest=2, admitted=(1, 2), on_air=1), Verdict.WAIT)
    assert hear(fence, 1, keyframe=True) == (fence, Verdict.STALE), "2 has published: 1 is over"
    fence, verdict = hear(fence, 2, keyframe=True)
    assert (fence, verdict) == (at(highest=2, admitted=(1, 2), on_air=2), Verdict.TAKE_OVER)


def test_a_new_connection_of_the_generation_on_air_needs_a_keyframe() -> None:
    fence = join(at(highest=2, admitted=(2,), on_air=2), 2)
    assert fence == at(highest=2, admitted=(2,), on_air=0)
    assert hear(fence, 2, keyframe=False)[1] is Verdict.WAIT
    assert hear(fence, 2, keyframe=True)[1] is Verdict.TAKE_OVER


def test_a_new_generation_that_only_connects_takes_nothing_from_the_one_on_air() -> None:
    fence = join(at(highest=1, admitted=(1, 2), on_air=1), 2)
    assert hear(fence, 1, keyframe=False)[1] is Verdict.FORWARD


def test_who_was_silent_is_asked_about() -> None:
    fence = at(admitted=(1,))
    assert not must_ask(fence, 1, silent_s=SILENCE_MAX_S)
    assert must_ask(fence, 1, silent_s=SILENCE_MAX_S + 0.001)


def test_who_was_not_admitted_is_asked_about_and_cannot_be_heard_before() -> None:
    assert must_ask(at(admitted=(1,)), 2, silent_s=0)
    with pytest.raises(AssertionError, match="before Dispatch was asked"):
        hear(at(admitted=(1,)), 2, keyframe=True)


def test_who_leaves_and_who_is_refused_is_asked_about_anew() -> None:
    assert leave(at(admitted=(1, 2)), 2) == at(admitted=(1,))
    assert admit(at(admitted=(1, 3)), C3, B2, home="h1")[0] == at(admitted=(1,))
    assert end(at(highest=2, admitted=(1, 2), on_air=2)) == at(highest=2)


def test_who_is_superseded_in_its_home_is_shown_until_its_successor_publishes() -> None:
    fence, verdict = admit(at(highest=1, admitted=(1,), on_air=1), A1, B2, home="h1")
    assert verdict == Superseded(2)
    fence, _ = admit(fence, B2, B2, home="h1")
    assert not must_ask(fence, 1, silent_s=0) and hear(fence, 1, keyframe=False)[1] is Verdict.FORWARD


ON_AIR_2 = at("h1", highest=2, admitted=(1, 2), on_air=2)
HOMES = {
    # The rightful publisher is below what the room has heard: the store has forgotten 2.
    "the one before is current again": (ON_AIR_2, A1, A1, "h2", at("h2", admitted=(1,), on_air=2), Admitted),
    "the one of the lost time is cut off": (ON_AIR_2, B2, A1, "h2", at("h2", on_air=2), NeverIssued),
    # Nothing is lost: who was on air is confirmed, and still on air.
    "the same one goes on": (ON_AIR_2, B2, B2, "h2", at("h2", admitted=(2,), on_air=2), Admitted),
    # What was admitted in another home passes no more, also where it is only superseded.
    "a superseded one is not shown on": (ON_AIR_2, A1, B2, "h2", at("h2", on_air=2), Superseded),
    # The same home, and an answer of a replica that says nothing of homes, change nothing but by the epochs.
    "the same home": (ON_AIR_2, A1, A1, "h1", ON_AIR_2, Superseded),
    "a home that is not told": (ON_AIR_2, A1, A1, "", ON_AIR_2, Superseded),
    "the first home that is told": (Fence(), A1, A1, "h1", at("h1", admitted=(1,)), Admitted),
    # A slow answer of the earlier home cannot be told from a new one: it empties the fence as well.
    "back to an earlier home": (at("h2", 3, (3,), 3), B2, B2, "h1", at("h1", admitted=(2,), on_air=3), Admitted),
}


@pytest.mark.parametrize("case", HOMES)
def test_another_home_empties_what_was_heard_and_admitted(case: str) -> None:
    before, asking, current, home, after, verdict = HOMES[case]
    fence, said = admit(before, asking, current, home=home)
    assert fence == after and isinstance(said, verdict)


def test_the_one_on_air_goes_on_in_another_home_without_a_keyframe() -> None:
    fence, _ = admit(ON_AIR_2, B2, B2, home="h2")
    assert hear(fence, 2, keyframe=False) == (replace(fence, highest=2), Verdict.FORWARD)


def test_the_one_before_takes_over_in_another_home_with_a_keyframe() -> None:
    fence, _ = admit(ON_AIR_2, A1, A1, home="h2")
    fence, verdict = hear(fence, 1, keyframe=False)
    assert verdict is Verdict.WAIT, "viewers have the picture of 2"
    assert hear(fence, 1, keyframe=True) == (at("h2", 1, (1,), 1), Verdict.TAKE_OVER)


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=60))
def test_what_passes_never_goes_back(packets: list[tuple[int, bool]]) -> None:
    fence, passed, seen = at(admitted=(1, 2, 3, 4, 5)), [0], 0
    for epoch, keyframe in packets:
        fence, verdict = hear(fence, epoch, keyframe=keyframe)
        if verdict in (Verdict.TAKE_OVER, Verdict.FORWARD):
            assert epoch >= max(passed[-1], seen)
            assert keyframe or epoch == passed[-1], "a generation begins with a keyframe"
            passed.append(epoch)
        assert (verdict is Verdict.STALE) == (epoch < seen)
        seen = max(seen, epoch)


@given(st.lists(st.tuples(st.sampled_from(["commit", "lose", "ask", "hear"]), st.integers(0, 9)), max_size=80))
def test_audible(steps: list[tuple[str, int]]) -> None:
    """In a home that the room knows, it has heard and admits nothing above the live's epoch, so the current generation
    passes as soon as Dispatch was asked about it. The rules of the store are those of spec/homes.py."""
    numbers, home, history = [1], 1, [1]  # Issued ever; the home; the epochs that the live had, as the store knows.
    fence = Fence()
    for step, pick in steps:
        epoch = numbers[pick % len(numbers)]
        if step == "commit":
            numbers.append(max(history[-1], home * 100) + 1)
            history.append(numbers[-1])
        elif step == "lose":
            home, history = home + 1, history[: 1 + pick % len(history)]
        elif step == "ask":
            asking, current = (Generation("w#1", each) for each in (epoch, history[-1]))
            fence, verdict = admit(fence, asking, current, home=f"h{home}")
            assert isinstance(verdict, Admitted) == (epoch == history[-1])
        elif not must_ask(fence, epoch, silent_s=0):
            fence, _ = hear(fence, epoch, keyframe=bool(pick % 2))
        if fence.home == f"h{home}":
            assert max(fence.admitted | {fence.highest}) <= history[-1]
