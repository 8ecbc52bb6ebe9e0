"""When a loop counts as blocked, and what its watchdog does: the pure decision, with the clock in the test's hands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dhsched.links.messages import REPORT_S
from dhsched.worker.watchdog import GAP_S, LOG_S, TELL_S, TICK_S, Action, Beat, FallSilent, Log, Over, Watch, decide

MAX_S = 10.0


class Dog:
    """A watchdog that looks every tick."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.now = 100.0
        self.turns = 0

    def look(self, *, turned: bool = False, after_s: float = TICK_S, max_s: float = MAX_S) -> Sequence[Action]:
        self.now += after_s
        self.turns += turned
        self.watch, actions = decide(self.watch, now=self.now, turns=self.turns, blocked_max_s=max_s)
        return actions

    def look_for(self, seconds: float, *, turned: bool = False, max_s: float = MAX_S) -> list[Action]:
        return [action for _ in range(round(seconds / TICK_S)) for action in self.look(turned=turned, max_s=max_s)]


def test_a_loop_that_turns_is_left_alone() -> None:
    assert Dog().look_for(60, turned=True) == []


def test_a_blocked_loop_is_logged_once_and_spoken_for_once_a_second() -> None:
    dog = Dog()
    dog.look_for(1, turned=True)
    actions = dog.look_for(5)
    logs = [action for action in actions if isinstance(action, Log)]
    beats = [action for action in actions if isinstance(action, Beat)]
    assert len(logs) == 1 and LOG_S <= logs[0].blocked_s < LOG_S + 2 * TICK_S
    assert len(beats) == 5 and beats[0].blocked_s < LOG_S + 2 * TICK_S, "the first at once: the last report may be old"
    assert all(0.9 * REPORT_S < b.blocked_s - a.blocked_s < 1.2 * REPORT_S for a, b in pairwise(beats))
    assert [beat.tell for beat in beats] == [beat.blocked_s >= TELL_S for beat in beats], "until somebody has taken it"
    [over] = dog.look(turned=True)
    assert isinstance(over, Over) and 4.5 < over.blocked_s < 5.5
    assert dog.look_for(5, turned=True) == []


def test_a_loop_that_stays_blocked_is_silent_in_the_end() -> None:
    dog = Dog()
    dog.look(turned=True)
    actions = dog.look_for(60)
    assert max(action.blocked_s for action in actions if isinstance(action, Beat)) <= MAX_S
    assert isinstance(actions[-1], FallSilent) and sum(isinstance(action, FallSilent) for action in actions) == 1


def test_without_time_to_speak_it_only_logs() -> None:
    dog = Dog()
    dog.look(turned=True)
    assert [type(action) for action in dog.look_for(5, max_s=0)] == [Log, FallSilent]


def test_a_process_that_was_frozen_was_not_blocked() -> None:
    dog = Dog()
    dog.look_for(1, turned=True)
    assert dog.look(after_s=30 + GAP_S) == [], "what was not seen is not known"
    assert dog.look_for(LOG_S - 2 * TICK_S) == []
    assert dog.look_for(1, turned=True) == []
