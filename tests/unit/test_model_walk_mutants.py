"""Every check of the random walk has a mutant of the model that it catches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dhsched.ownership import fence
from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.state import Live, State
from dhsched.ownership.steps import STEPS
from spec.patching import users_of
from tests.harness.patching import everywhere
from tests.harness.walk import SEEDS, Broken, walk


def mutant_epoch_not_advanced(patch: pytest.MonkeyPatch) -> None:
    everywhere(patch, "next_number", lambda s, issued: max(issued, 1))


def mutant_guard_ignores_the_epoch(patch: pytest.MonkeyPatch) -> None:
    def guard(s: Draft, record: Live | None, worker: str, epoch: int) -> object:
        return real_guard(s, record, worker, record.epoch if record else epoch)

    real_guard = fence.guard
    everywhere(patch, "guard", guard)


def mutant_place_ignores_what_it_expected(patch: pytest.MonkeyPatch) -> None:
    def check(s: Draft, live: str, operation: str, cause: Any, expected: int, at_boundary: bool) -> object:
        return real_check(s, live, operation, cause, s.lives[live].epoch, at_boundary)

    real_check = users_of("check")[0].check
    everywhere(patch, "check", check)


def mutant_capacity_is_only_a_hint(patch: pytest.MonkeyPatch) -> None:
    everywhere(patch, "refuses", lambda s, worker, record, cause: None if worker in s.workers else "UNKNOWN")


def mutant_crash_keeps_active(patch: pytest.MonkeyPatch) -> None:
    everywhere(patch, "vacate", lambda s, worker, live, number: s.write_slot(worker, live, number, "vacant"))


def mutant_cancel_forgets_the_slot(patch: pytest.MonkeyPatch) -> None:
    real_clear_move = Draft.clear_move
    patch.setattr(Draft, "clear_move", lambda self, live, *, slot=True: real_clear_move(self, live, slot=False))


def mutant_room_is_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draft, "write_free", lambda self, worker: None)


def mutant_agenda_is_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draft, "look_by", lambda self, live, when: None)


def mutant_waiting_is_not_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draft, "leave_waiting", lambda self, live: self.set_live(live, waits=()))


def mutant_poison_is_not_trimmed(patch: pytest.MonkeyPatch) -> None:
    def drop_poison(s: Draft, live: str, reason: str) -> None:
        s.set_live(live, acked=s.lives[live].acked + 1, suspect=None)

    everywhere(patch, "drop_poison", drop_poison)


def mutant_release_goes_on_where_the_store_is(patch: pytest.MonkeyPatch) -> None:
    """A lost reply is skipped: what the caller has got is not asked."""
    real = STEPS["release_input"]

    def release_input(state: State, now: int, limits: Limits, **given: Any) -> Any:
        record = state.lives.get(given["live"])
        return real(state, now, limits, **{**given, "after": record.released if record else 0})

    patch.setitem(STEPS, "release_input", release_input)


def mutant_interrupt_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    real = users_of("interrupt")[0].interrupt

    def interrupt(s: Draft, live: str, payload: bytes, mark: bytes) -> None:
        dropped = s.lives[live].dropped_interrupt
        real(s, live, payload, mark)
        s.set_live(live, dropped_interrupt=dropped)

    everywhere(patch, "interrupt", interrupt)


def mutant_sweep_forgets_the_numbers(patch: pytest.MonkeyPatch) -> None:
    real_done = Draft.done

    def done(self: Draft) -> State:
        self.cell = replace(self.cell, epoch_base=0)
        return real_done(self)

    patch.setattr(Draft, "done", done)


MUTANTS = {name: value for name, value in globals().items() if name.startswith("mutant_")}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_walk_catches(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(Broken, match=r"(?s)seed \d+, step \d+: .*repeat with: DHSCHED_WALK_SEED=\d+ "):
        for seed in range(SEEDS):
            walk(seed)
