"""The paper's sentences, as tests of that name, over states that the random walk reaches.

A sentence is about every state, so each test asks it of a few hundred of them rather than of one made up for it. The
scenarios that show each sentence once, for a reader, are in tests/scenarios.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from dhsched.ownership import outcomes
from dhsched.ownership.outcomes import Outcome
from dhsched.ownership.state import Live, State
from dhsched.ownership.steps import STEPS
from dhsched.ownership.steps.place import Create
from dhsched.types import split_tag
from tests.harness.walk import Walk
from tests.harness.walk_limits import LIMITS


class Moment(NamedTuple):
    """A state that was reached, and when."""

    state: State
    now: int

    def step(self, name: str, /, **given: Any) -> tuple[State, Outcome]:
        state, outcome = STEPS[name](self.state, self.now, LIMITS, **given)
        return state, outcome

    def place(self, live: str, expected: int, **given: Any) -> tuple[State, Outcome]:
        given = {"operation": "a new one", "cause": "reassign", "candidates": sorted(self.state.workers)} | given
        return self.step("place", live=live, expected=expected, **given)


@cache
def moments() -> tuple[Moment, ...]:
    found = []
    for seed in range(1000, 1020):
        walk = Walk(seed)
        for count in range(200):
            walk.step()
            if count % 20 == 0:
                found.append(Moment(walk.state, walk.now))
    return tuple(found)


def lives() -> list[tuple[Moment, str, Live]]:
    return [(moment, live, record) for moment in moments() for live, record in moment.state.lives.items()]


def owner(state: State, live: str) -> tuple[int, str, str | None]:
    record = state.lives[live]
    return record.epoch, record.selected, record.active


def granted(moment: Moment, live: str) -> set[tuple[str, int, int]]:
    """Every (Worker, epoch, pull) that the release guard lets pass here."""
    record = moment.state.lives[live]
    passed = set()
    for worker in {*moment.state.workers, record.selected}:
        for epoch in {0, record.epoch - 1, record.epoch, record.epoch + 1, record.issued}:
            for pull_no in range(record.pull_no + 2):
                asking = {"worker": worker, "epoch": epoch, "pull_no": pull_no, "after": 0, "credit": 9}
                _, outcome = moment.step("release_input", live=live, **asking)
                if isinstance(outcome, outcomes.Items | outcomes.Nothing):
                    passed.add((worker, epoch, pull_no))
    return passed


# -- 4.1 Authority generations and the release rule


def test_the_epoch_increases_whenever_ownership_advances_to_a_new_generation() -> None:
    advanced = 0
    for moment, live, record in lives():
        after, outcome = moment.place(live, record.epoch)
        if isinstance(outcome, outcomes.Committed):
            advanced += 1
            assert after.lives[live].epoch == outcome.generation.epoch > record.epoch
            assert after.lives[live].selected == outcome.generation.worker
    assert advanced > 50


def test_runtime_existence_does_not_satisfy_the_release_condition() -> None:
    """Neither a slot, nor being selected: until the claim nothing is released."""
    unclaimed = [(moment, live) for moment, live, record in lives() if record.active is None]
    assert len(unclaimed) > 50
    for moment, live in unclaimed:
        assert granted(moment, live) == set()


# -- 4.2 Committing a generation


def test_an_operation_that_still_expects_an_old_epoch_returns_stale_without_modifying_the_new_generation() -> None:
    for moment, live, record in lives():
        for cause in ("reassign", "recover", "drain", "rebalance"):
            after, outcome = moment.place(live, record.epoch - 1, cause=cause)
            assert outcome == outcomes.Stale(record.generation)
            assert after == moment.state


def test_the_same_update_clears_active() -> None:
    """`The new generation begins with no enabled ReleaseInput.`"""
    for moment, live, record in lives():
        after, outcome = moment.place(live, record.epoch)
        if isinstance(outcome, outcomes.Committed):
            assert after.lives[live].active is None
            assert granted(Moment(after, moment.now), live) == set()


def test_dispatch_does_not_wait_for_the_previous_worker_before_committing_the_next_generation() -> None:
    """With a Worker that has a free slot, any live that is not ended can be placed, whatever its source does."""
    for moment, live, record in lives():
        if record.state == "ended":
            continue
        fresh, worker = with_new_worker(moment)
        _, outcome = fresh.place(live, record.epoch, candidates=[worker])
        assert isinstance(outcome, outcomes.Committed)


def with_new_worker(moment: Moment) -> tuple[Moment, str]:
    """The same moment with one more Worker, which has a free slot, and its id."""
    state, registered = moment.step("register_worker", name="Q", boot="q", pool="gpu", capacity=9)
    assert isinstance(registered, outcomes.Registered)
    state, _ = Moment(state, moment.now).step("report", worker=registered.worker, boot="q")
    return Moment(state, moment.now), registered.worker


# -- 4.3 Claim and per-item fencing


def test_claims_from_another_worker_fail() -> None:
    for moment, live, record in lives():
        for worker in moment.state.workers:
            if worker != record.selected:
                given = {"worker": worker, "epoch": record.epoch, "after": 0, "controller": "c"}
                after, outcome = moment.step("pull", live=live, **given)
                assert isinstance(outcome, outcomes.Stale | outcomes.Ended)
                assert after == moment.state


def test_repeated_claims_from_the_selected_worker_leave_the_ownership_state_unchanged() -> None:
    claimed = 0
    for moment, live, record in lives():
        given = {"worker": record.selected, "epoch": record.epoch, "after": 0, "controller": "c"}
        once, outcome = moment.step("pull", live=live, **given)
        if not isinstance(outcome, outcomes.Pulling):
            continue
        claimed += 1
        assert once.lives[live].active == record.selected
        again, outcome = Moment(once, moment.now).step("pull", live=live, **given)
        assert isinstance(outcome, outcomes.Pulling)
        assert owner(again, live) == owner(once, live)
    assert claimed > 50


def test_once_a_higher_generation_commits_subsequent_releases_from_the_previous_generation_fail() -> None:
    for moment, live, record in lives():
        after, outcome = moment.place(live, record.epoch)
        if not isinstance(outcome, outcomes.Committed):
            continue
        old = {"live": live, "worker": record.selected, "epoch": record.epoch}
        later = Moment(after, moment.now)
        claim = {"worker": outcome.generation.worker, "epoch": outcome.generation.epoch}
        claimed, _ = later.step("pull", live=live, after=0, controller="c", **claim)
        for state in (after, claimed):
            for pull_no in range(record.pull_no + 2):
                release = {**old, "pull_no": pull_no, "after": 0, "credit": 9}
                unchanged, refused = Moment(state, moment.now).step("release_input", **release)
                assert isinstance(refused, outcomes.Stale)
                assert unchanged == state


# -- 4.4 Single-owner safety


def test_at_most_one_release_is_enabled_for_a_live() -> None:
    enabled = [granted(moment, live) for moment, live, _ in lives()]
    assert max(map(len, enabled)) == 1


def test_a_retry_of_a_release_hands_out_what_it_handed_out() -> None:
    """`Input transport retains at-least-once semantics`: a lost reply is repeated, never skipped."""
    for moment, live, _ in lives():
        for worker, epoch, pull_no in granted(moment, live):
            asking = {"live": live, "worker": worker, "epoch": epoch, "pull_no": pull_no, "after": 0, "credit": 9}
            once, first = moment.step("release_input", **asking)
            _, second = Moment(once, moment.now).step("release_input", **asking)
            assert first == second


# -- 4.5 Epoch-guarded idempotence and no resurrection


def test_a_retry_of_a_completed_operation_returns_the_generation_already_committed() -> None:
    retried = 0
    for moment, live, record in lives():
        for row in (record.current, *record.history):
            after, outcome = moment.place(live, 0, operation=row.operation)
            assert isinstance(outcome, outcomes.Committed)
            assert outcome.again
            assert (outcome.generation.worker, outcome.generation.epoch) == (row.worker, row.epoch)
            assert outcome.superseded_by == (None if row.epoch == record.epoch else record.generation)
            assert after == moment.state
            retried += 1
    assert retried > 100


def test_a_create_of_an_id_that_is_taken_moves_nothing() -> None:
    for moment, live, record in lives():
        for fingerprint in ("f", "g"):
            given = {"operation": "o", "cause": "create", "candidates": sorted(moment.state.workers)}
            create = Create("anna", fingerprint)
            after, outcome = moment.step("place", live=live, create=create, **given)
            assert after == moment.state
            if record.state == "ended":
                assert outcome == outcomes.Ended()
            elif record.fingerprint != fingerprint:
                assert outcome == outcomes.Conflict()
            else:
                assert isinstance(outcome, outcomes.Committed)
                assert (outcome.generation, outcome.again) == (record.generation, True)


def test_work_carrying_an_older_epoch_performs_no_ownership_update() -> None:
    for moment, live, record in lives():
        for epoch in {0, record.epoch - 1}:
            for worker in {*moment.state.workers, record.selected}:
                generation = {"live": live, "worker": worker, "epoch": epoch}
                for name, given in (
                    ("pull", {**generation, "after": 0, "controller": "c"}),
                    ("release_input", {**generation, "pull_no": record.pull_no, "after": 0, "credit": 9}),
                    ("ack_input", {**generation, "n": record.released, "saved": b"s"}),
                    ("emit", {**generation, "n": 1, "name": "m", "data": b"{}"}),
                    ("depart", {"live": live, "worker": worker, "number": epoch}),
                    ("reserve", {"live": live, "expected": epoch, "candidates": [worker]}),
                ):
                    after, _ = moment.step(name, **given)
                    assert owner(after, live) == owner(moment.state, live)
                    if name != "depart":
                        assert after == moment.state


def test_cleanup_removes_only_state_tagged_with_the_matching_epoch() -> None:
    for moment in moments():
        for worker, table in moment.state.slots.items():
            for tag in table:
                live, number = split_tag(tag)
                for other in (number - 1, number + 1):
                    if f"{live}@{other}" not in table:
                        after, outcome = moment.step("depart", worker=worker, live=live, number=other)
                        assert (after, outcome) == (moment.state, outcomes.Nothing())
                after, _ = moment.step("depart", worker=worker, live=live, number=number)
                if worker in after.workers:
                    kept = {other: slot for other, slot in table.items() if other != tag}
                    assert {other: slot for other, slot in after.slots.get(worker, {}).items() if other != tag} == kept


def test_cancellation_removes_a_reservation_only_when_its_identifier_matches() -> None:
    moving = 0
    for moment, live, record in lives():
        number = record.move.number if record.move else 0
        for wrong in {0, 1, record.epoch, record.issued + 1} - {number}:
            for name in ("cancel", "hold"):
                assert moment.step(name, live=live, number=wrong) == (moment.state, outcomes.NoMove())
        if record.move:
            moving += 1
            after, outcome = moment.step("cancel", live=live, number=number)
            assert outcome == outcomes.Cancelled()
            assert after.lives[live].move is None
            assert owner(after, live) == owner(moment.state, live)
    assert moving > 5


# -- 5.5 Atomic capacity admission


def test_committed_and_reserved_never_exceed_capacity_and_later_attempts_return_full() -> None:
    """Fill every Worker from every state: it takes exactly the room it has."""
    for moment in moments():
        state = moment.state
        for index, (worker, record) in enumerate(moment.state.workers.items()):
            placed = 0
            for n in range(4):
                given = {"operation": f"fill-{n}", "cause": "create", "create": Create("anna", "f")}
                state, outcome = Moment(state, moment.now).step(
                    "place", live=f"v/{index}-{n}", candidates=[worker], **given
                )
                placed += isinstance(outcome, outcomes.Committed)
                assert len(state.slots.get(worker, {})) <= record.capacity
            room = record.capacity - record.load if record.placeable else 0
            assert placed <= room
            if placed < room:
                assert isinstance(outcome, outcomes.Starting | outcomes.Waiting)


# -- 6 Source-independent ownership transfer


def test_a_delayed_recovery_item_is_discarded_without_modifying_ownership() -> None:
    """Recovery proceeds only when epoch(s) = e (equation 17), and only while its reason stands."""
    for moment, live, record in lives():
        after, outcome = moment.place(live, record.epoch, cause="recover")
        if isinstance(outcome, outcomes.Committed):
            again, stale = Moment(after, moment.now).place(live, record.epoch, cause="recover", operation="late")
            assert stale == outcomes.Stale(outcome.generation)
            assert again == after
        else:
            assert owner(after, live)[:2] == owner(moment.state, live)[:2]


def test_the_replacement_reads_pending_input_from_shared_state() -> None:
    """Everything that was accepted and not settled is what the next generation is given, in order."""
    read = 0
    for moment, live, record in lives():
        if record.state == "ended" or record.epoch <= moment.state.cell.epoch_floor:
            continue
        fresh, worker = with_new_worker(moment)
        placed, outcome = fresh.place(live, record.epoch, candidates=[worker])
        assert isinstance(outcome, outcomes.Committed)
        generation = {"live": live, "worker": worker, "epoch": outcome.generation.epoch}
        pulled, pulling = Moment(placed, moment.now).step("pull", **generation, after=0, controller="c")
        assert isinstance(pulling, outcomes.Pulling)
        assert (pulling.after, pulling.saved, pulling.config) == (record.acked, record.saved, record.config)
        asking = {"pull_no": pulling.pull_no, "after": pulling.after, "credit": 99}
        _, items = Moment(pulled, moment.now).step("release_input", **generation, **asking)
        if record.pending and record.suspect is None:
            read += 1
            assert items == outcomes.Items(record.acked + 1, record.pending)
    assert read > 20


# -- 4.6 Liveness, under weak fairness and with a Worker that has a free slot


def test_an_unowned_live_eventually_reaches_a_committed_generation_and_no_work_is_left_behind() -> None:
    """L1, L2, L3: only looks and one good Worker from here on; every other Worker is silent."""
    for moment in moments()[::4]:
        state = settle(*with_new_worker(moment))
        for live, record in state.lives.items():
            assert record.state == "ended" or record.active is not None, (live, record)
            assert record.move is None
            assert not record.pending
        assert state.waiting == {}
        assert {live for entries in state.agenda.values() for live in entries} <= {
            live for live, record in state.lives.items() if record.state == "ended"
        }


def settle(moment: Moment, good: str) -> State:
    state, now = moment
    for _ in range(60):
        now += 100
        for live in sorted(state.lives):
            state, outcome = STEPS["look"](state, now, LIMITS, live=live)
            if isinstance(outcome, outcomes.Recover):
                given = {"operation": f"settle-{now}", "cause": "recover", "candidates": [good]}
                state, _ = STEPS["place"](state, now, LIMITS, live=live, expected=outcome.epoch, **given)
            state = serve(state, now, live, good)
    return state


def serve(state: State, now: int, live: str, good: str) -> State:
    """The good Worker does what it is given: claim, take everything, ack, and depart what it must not run."""
    record = state.lives.get(live)
    for tag, slot in state.slots.get(good, {}).items():
        name, number = split_tag(tag)
        if slot == "departing":
            state, _ = STEPS["depart"](state, now, LIMITS, worker=good, live=name, number=number)
    if record is None or record.selected != good or record.state == "ended":
        return state
    generation: dict[str, Any] = {"live": live, "worker": good, "epoch": record.epoch}
    if record.active is None:
        state, _ = STEPS["pull"](state, now, LIMITS, **generation, after=0, controller="c")
    asking = {"pull_no": state.lives[live].pull_no, "after": 0, "credit": 9}
    state, _ = STEPS["release_input"](state, now, LIMITS, **generation, **asking)
    state, _ = STEPS["ack_input"](state, now, LIMITS, **generation, n=state.lives[live].released)
    return state
