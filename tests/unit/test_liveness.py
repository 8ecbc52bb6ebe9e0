"""Who is called lost, and when: the pure decision, with the replica's own clock in the test's hands."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from dhsched.dispatch.recovery.liveness import GAP_S, HUNG_UP_S, Verdict, Watch, judge, next_overdue
from dhsched.store.records.workers import Beat

TTL_S = 3.0
STEP_S = 0.5


def beats(**of: int) -> dict[str, Beat]:
    return {worker: Beat(beat, lost=False, mode="ready") for worker, beat in of.items()}


class Replica:
    """A replica that reads every half second."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.now = 100.0

    def read(
        self, seen: Mapping[str, Beat], *, after_s: float = STEP_S, hung_up: Mapping[str, int] | None = None
    ) -> Verdict:
        self.now += after_s
        self.watch, verdict = judge(self.watch, seen, now=self.now, ttl_s=TTL_S, hung_up=hung_up)
        return verdict

    def read_for(self, seconds: float, seen: Mapping[str, Beat]) -> list[str]:
        lost: list[str] = []
        for _ in range(int(seconds / STEP_S)):
            lost += [worker for worker, _ in self.read(seen).expire]
        return lost


def test_a_beat_that_stands_still_for_the_ttl_is_lost_and_the_store_is_told_which_beat() -> None:
    replica = Replica()
    replica.read(beats(a=7, b=7))
    for i in range(5):
        assert replica.read(beats(a=7, b=8 + i)).expire == ()
    assert replica.read(beats(a=7, b=20)).expire == (("a", 7),)


def test_a_beat_that_moves_is_never_lost() -> None:
    replica = Replica()
    assert all(replica.read(beats(a=i)).expire == () for i in range(100))


def test_after_a_gap_in_our_own_reads_every_wait_starts_anew() -> None:
    """A store that was paused, or a replica that stood still, must not kill the fleet."""
    replica = Replica()
    replica.read_for(2.5, beats(a=7))
    assert replica.read(beats(a=7), after_s=10).expire == ()
    assert replica.read_for(2.5, beats(a=7)) == []
    assert "a" in replica.read_for(1.0, beats(a=7))


def test_one_that_hung_up_is_given_less_time() -> None:
    replica = Replica()
    replica.read(beats(a=7, b=7))
    replica.read(beats(a=7, b=7))
    assert replica.read(beats(a=7, b=7), hung_up={"a": 7}).expire == (("a", 7),)


def test_one_that_hung_up_and_reported_elsewhere_is_given_all_its_time() -> None:
    replica = Replica()
    for _ in range(3):
        verdict = replica.read(beats(a=8), hung_up={"a": 7})
    assert verdict.expire == ()


def test_the_time_of_the_next_reading_is_when_one_that_hung_up_is_overdue() -> None:
    replica = Replica()
    replica.read(beats(a=7, b=7))
    seen_at = replica.now
    replica.read(beats(a=7, b=8), hung_up={"a": 7, "b": 8})
    assert next_overdue(replica.watch, {"a": 7, "b": 8}) == seen_at + HUNG_UP_S
    replica.read(beats(a=7, b=8), hung_up={"a": 7, "b": 8})
    assert replica.read(beats(a=7, b=8), after_s=0.0, hung_up={"a": 7, "b": 8}).expire == (("a", 7),)
    assert next_overdue(replica.watch, {"a": 7, "b": 8}) == seen_at + STEP_S + HUNG_UP_S, "the other one's"
    assert next_overdue(replica.watch, {"a": 7}) is None, "this reading has judged it"
    assert next_overdue(replica.watch, {"b": 7}) is None, "it has reported since"


def test_one_that_is_lost_already_is_left_alone() -> None:
    replica = Replica()
    seen = {"a": Beat(7, lost=True, mode="ready"), **beats(b=1)}
    assert "a" not in replica.read_for(10, seen)


def test_many_that_fall_silent_together_wait_one_more_ttl_and_then_go_a_few_at_a_time() -> None:
    replica = Replica()
    fleet = beats(**{f"w{i:02d}": 7 for i in range(20)})
    assert replica.read_for(TTL_S, fleet) == []
    verdict = replica.read(fleet)
    assert verdict.braked == 20 and verdict.silent == set(fleet), "nothing new should go to them"
    assert replica.read_for(TTL_S - 2 * STEP_S, fleet) == []
    gone = replica.read_for(3, fleet)
    assert 2 <= len(gone) <= 8, "two a second, not twenty at once"


def test_the_brake_is_released_when_they_report_again() -> None:
    replica = Replica()
    fleet = beats(**{f"w{i}": 7 for i in range(10)})
    replica.read_for(4, fleet)
    verdict = replica.read(beats(**{f"w{i}": 8 for i in range(10)}))
    assert verdict == Verdict(()) and replica.watch.braked_since is None


@given(
    st.lists(
        st.tuples(st.floats(0.01, 5), st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3), max_size=6)),
        max_size=40,
    )
)
def test_nobody_is_lost_whose_beat_was_not_seen_still_for_the_ttl_without_a_gap(
    readings: list[tuple[float, dict[str, int]]],
) -> None:
    replica = Replica()
    since: dict[str, tuple[int, float]] = {}
    for after_s, seen in readings:
        verdict = replica.read(beats(**seen), after_s=after_s)
        if after_s > GAP_S:
            since.clear()
        since = {w: since[w] if w in since and since[w][0] == beat else (beat, replica.now) for w, beat in seen.items()}
        for worker, beat in verdict.expire:
            assert since[worker][0] == beat
            assert replica.now - since[worker][1] >= TTL_S
