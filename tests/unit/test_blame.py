"""Who is cordoned for its troubles: the pure decision."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dhsched.blame_limits import Blamed, BlameLimits, judge_blame, may_cordon

LIMITS = BlameLimits(loss=3, stall=8, crash=8, cordon_share=0.25)


def members(trouble: str, count: int) -> list[str]:
    return [f"{trouble} default/L{n}" for n in range(count)]


def test_up_to_the_limit_nothing_happens_and_one_more_is_blame_with_its_numbers() -> None:
    assert judge_blame(members("loss", 3) + members("stall", 8) + members("crash", 8), LIMITS) is None
    assert judge_blame(members("loss", 4), LIMITS) == Blamed("loss", 4, 3)
    assert judge_blame(members("stall", 9), LIMITS) == Blamed("stall", 9, 8)
    assert judge_blame(members("crash", 9), LIMITS) == Blamed("crash", 9, 8)


def test_troubles_of_different_kinds_are_not_added_up_and_marks_do_not_count() -> None:
    marks = [f"{kind} w#{n}" for kind in ("cordon", "blamed") for n in range(50)]
    assert judge_blame(members("loss", 3) + members("stall", 8) + marks, LIMITS) is None


def test_the_last_one_that_takes_lives_is_never_cordoned() -> None:
    assert not may_cordon({"a": ""}, "a", 1.0)
    assert not may_cordon({"a": "", "b": "lost", "c": "draining"}, "a", 1.0)
    assert may_cordon({"a": "", "b": ""}, "a", 0.0), "one of two may always go"


@given(
    st.dictionaries(st.text("abcdefgh", min_size=1, max_size=3), st.sampled_from(["", "", "lost", "draining"])),
    st.floats(0, 1),
)
def test_cordoned_one_after_the_other_a_share_of_the_pool_stays(barred: dict[str, str], share: float) -> None:
    """A fault of everybody must not cordon everybody."""
    out_before = sum(1 for why in barred.values() if why)
    for worker in sorted(barred):
        if not barred[worker] and may_cordon(barred, worker, share):
            barred[worker] = "cordoned"
    out = sum(1 for why in barred.values() if why)
    assert out <= max(out_before, 1, int(len(barred) * share))
    assert out < len(barred) or out == out_before
