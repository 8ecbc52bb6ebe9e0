"""Rules about time broken on purpose, one at a time: the mutants of spec/Time.tla, and what takes the place of the
product's functions in them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Items, Pulling
from dhsched.ownership.state import State, frozen
from spec.broken_rules import function, model_function, set_live, step
from spec.mutant import Mutant


def interrupt_as_progress(real: Any, s: Draft, live: str, payload: bytes, mark: bytes) -> None:
    real(s, live, payload, mark)
    s.set_live(live, note=None, stalled=None)


def interrupt_ending_the_crash_loop(real: Any, s: Draft, live: str, payload: bytes, mark: bytes) -> None:
    real(s, live, payload, mark)
    s.set_live(live, starts=0)


def taken_as_progress(real: Any, state: State, *rest: Any, live: str, **named: Any) -> Any:
    after, outcome = real(state, *rest, live=live, **named)
    return (set_live(after, live, note=None) if isinstance(outcome, (Pulling, Items)) else after), outcome


def claim_ending_the_crash_loop(real: Any, state: State, *rest: Any, live: str, **named: Any) -> Any:
    after, outcome = real(state, *rest, live=live, **named)
    return (set_live(after, live, starts=0) if isinstance(outcome, Pulling) else after), outcome


def look_without_the_age(real: Any, state: State, *rest: Any, live: str) -> Any:
    note = state.lives[live].note
    after, outcome = real(set_live(state, live, note=note and (note[0], 0)), *rest, live=live)
    return (set_live(after, live, note=note) if note else after), outcome


def stop_any_clock(real: Any, s: Draft, worker: str, tag: str) -> None:
    s.set_live(tag.rpartition("@")[0], note=None)


def depart_at_once(real: Any, state: State, now: int, *rest: Any, **named: Any) -> Any:
    after, outcome = real(state, now, *rest, **named)
    due = {number: frozen(dict.fromkeys(entries, now)) for number, entries in after.agenda.items()}
    return replace(after, agenda=frozen(due)), outcome


def backoff_without_end(real: Any, tries: int, limits: Limits) -> int:
    return limits.lease_ms << tries


def recover_without_lease(real: Any, s: Draft, live: str, need: Any) -> Any:
    after, outcome = real(s, live, need)
    return replace(after, agenda=frozen({})), outcome


def look_by_nobody(real: Any, s: Draft, live: str, when: int) -> None:
    """Nobody will look."""


TIME_MUTANTS = (
    Mutant(
        "interrupt-is-progress",
        "an interrupt voids the note of a standstill",
        tlc=("Time", "Replaced"),
        explorer=("Time", "Replaced"),
        patch=lambda: model_function("interrupt", interrupt_as_progress),
    ),
    Mutant(
        "pull-is-progress",
        "a connection that comes back voids the note of a standstill",
        tlc=("Time", "Replaced"),
        explorer=("Time", "Replaced"),
        patch=lambda: step("pull", taken_as_progress),
    ),
    Mutant(
        "release-is-progress",
        "a release voids the note of a standstill",
        tlc=("Time", "Replaced"),
        explorer=("Time", "Replaced"),
        patch=lambda: step("release_input", taken_as_progress),
    ),
    Mutant(
        "append-without-a-look",
        "input into an empty queue puts the live on no agenda",
        tlc=("Time", "I7"),
        explorer=("Time", "I7"),
        patch=lambda: function(Draft, "look_by", look_by_nobody),
    ),
    Mutant(
        "recover-without-lease",
        "whoever was told RECOVER is the only one who will ever be told",
        tlc=("Time", "I7"),
        explorer=("Time", "I7"),
        patch=lambda: model_function("recover", recover_without_lease),
    ),
    Mutant(
        "note-without-its-time",
        "the second look recovers, however soon it comes",
        tlc=("Time", "Patient"),
        explorer=("Time", "Patient"),
        patch=lambda: step("look", look_without_the_age),
    ),
    Mutant(
        "wake-without-a-note",
        "a look at a standstill wakes, and leaves the live due as it was",
        tlc=("LiveTime", "temporal"),
    ),
    Mutant(
        "start-without-end",
        "a Worker may say for ever that a live is still starting",
        tlc=("Time", "Claimed"),
        explorer=("Time", "Claimed"),
        patch=lambda: model_function("stop_clock", stop_any_clock),
    ),
    Mutant(
        "backoff-without-end",
        "a wait that doubles has no limit",
        tlc=("TimeCrashes", "Restarted"),
        explorer=("TimeCrashes", "Restarted"),
        patch=lambda: model_function("backoff_ms", backoff_without_end),
    ),
    Mutant(
        "crash-without-backoff",
        "a runtime that dies before its first ack is placed again at once",
        tlc=("TimeCounted", "Paced"),
        explorer=("TimeCounted", "Paced"),
        patch=lambda: step("depart", depart_at_once),
    ),
    Mutant(
        "claim-ends-the-crash-loop",
        "a claim is taken for progress, so that a crash after it is the first one",
        tlc=("TimeCounted", "Paced"),
        explorer=("TimeCounted", "Paced"),
        patch=lambda: step("pull", claim_ending_the_crash_loop),
    ),
    Mutant(
        "interrupt-ends-the-crash-loop",
        "an interrupt is taken for progress, so that a crash after it is the first one",
        tlc=("TimeCounted", "Paced"),
        explorer=("TimeCounted", "Paced"),
        patch=lambda: model_function("interrupt", interrupt_ending_the_crash_loop),
    ),
)
