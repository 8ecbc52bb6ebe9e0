"""Mutants of the input path that the schedules catch: a check that nothing can fail checks nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dhsched.infer.granted_pull import NO_STEP, GrantedPull, Step
from dhsched.infer.pulls import Pulls
from dhsched.links.messages import Pulling
from dhsched.ownership import outcomes as o
from dhsched.ownership.agent import AgentBook
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.pull_client import Connection, PullClient
from dhsched.worker.session import Item, Session
from tests.harness import schedule
from tests.harness.schedule_runs import quiet, run_all
from tests.harness.servers import running_server

__all__ = ["quiet"]

SCHEDULES = 400  # Up to so many; the first that fails ends it.
Patch = Callable[[pytest.MonkeyPatch], None]


def accept_any_number(patch: pytest.MonkeyPatch) -> None:
    def accept(self: SessionInbox, item: Item) -> bool:
        self._put(item)
        return True

    patch.setattr(SessionInbox, "accept", accept)


def ack_what_only_arrived(patch: pytest.MonkeyPatch) -> None:
    def ack(self: Session, item: Item | None = None) -> None:
        self._port.ack(self, *SessionInbox(self).accepted, None, None)

    patch.setattr(Session, "ack", ack)


def start_a_generation_twice(patch: pytest.MonkeyPatch) -> None:
    def over(self: AgentBook, tag: str) -> None:
        del self.runs[tag]
        self._look(tag)

    patch.setattr(AgentBook, "over", over)


def forget_a_full_window(patch: pytest.MonkeyPatch) -> None:
    release_answered = GrantedPull.release_answered

    def mutant(self: GrantedPull[Any], outcome: o.ReleaseOutcome) -> Step:
        step = release_answered(self, outcome)
        if isinstance(outcome, o.Nothing):
            self.at_window = False
        return step

    patch.setattr(GrantedPull, "release_answered", mutant)


def say_no_ack_again(patch: pytest.MonkeyPatch) -> None:
    pulling = PullClient._pulling

    def mutant(self: PullClient, connection: Connection, said: Pulling) -> None:
        stream = self._streams.get((said.live, said.epoch))
        if stream is not None:
            stream.ack_n = 0
        pulling(self, connection, said)

    patch.setattr(PullClient, "_pulling", mutant)


def push_and_release_nothing(patch: pytest.MonkeyPatch) -> None:
    """The store sends no hint to who holds the pull itself, and nothing is released for it."""

    flush = Pulls._flush

    def mutant(self: Pulls) -> None:
        for row in self._pushed:
            self._appends_here.add(row)
        self._pushed.clear()
        flush(self)

    patch.setattr(Pulls, "_flush", mutant)
    patch.setattr(GrantedPull, "append_answered", lambda self, outcome: NO_STEP)


def ignore_hints(patch: pytest.MonkeyPatch) -> None:
    """What another controller stored, or a hold's end, is not noticed."""
    patch.setattr(Pulls, "on_hint", lambda self, channel, live: None)


def write_no_journal_again(patch: pytest.MonkeyPatch) -> None:
    """What an ack has brought to the journal is not sent again with that ack."""
    patch.setattr(SessionInbox, "journal_since", lambda self, stored: None)


@pytest.mark.long
@pytest.mark.parametrize(
    "mutate",
    [
        accept_any_number,
        ack_what_only_arrived,
        start_a_generation_twice,
        forget_a_full_window,
        say_no_ack_again,
        push_and_release_nothing,
        ignore_hints,
        write_no_journal_again,
    ],
)
async def test_schedules_catch(mutate: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    monkeypatch.setattr(schedule, "SETTLE_S", 4.0)
    async with running_server("valkey") as server:
        with pytest.raises(ExceptionGroup) as caught:
            await run_all(server.address, SCHEDULES)
    assert caught.group_contains((AssertionError, TimeoutError))
