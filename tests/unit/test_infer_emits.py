"""Messages of runtimes in an Infer-Controller: one call for many, in order, and what each Worker is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from dhsched.errors import StoreUnavailable
from dhsched.infer import pulls as pulls_module
from dhsched.infer.emits import Emits
from dhsched.infer.pulls import Pulls
from dhsched.links import messages as m
from dhsched.ownership import outcomes as o
from dhsched.store.steps.redis import Emit
from dhsched.types import Generation
from tests.unit.pulling import LIVE, Peer, SlowStore, pull_of, settle


class EmitStore(SlowStore):
    def __init__(self) -> None:
        super().__init__()
        self.emits: list[tuple[Sequence[Emit], asyncio.Future[Any]]] = []

    def emit_soon(self, rows: Sequence[Emit]) -> asyncio.Future[Any]:
        self.emits.append((rows, asyncio.get_running_loop().create_future()))
        return self.emits[-1][1]


class Worker(Peer):
    """A connection that keeps what it is sent, and counts the messages that were answered."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = 0
        self.told: list[Any] = []
        self.outbox.put = self.keep  # type: ignore[method-assign]

    def keep(self, message: Any, payload_bytes: int = 0) -> None:
        self.told.append(message)

    def emit_answered(self) -> None:
        self.answered += 1


def emit(n: int, live: str = LIVE) -> Emit:
    return Emit(live, "A#1", 1, n, "m", b"{}", 0)


async def serving() -> tuple[EmitStore, Pulls, Emits, Worker]:
    store, peer = EmitStore(), Worker()
    pulls = Pulls(store, credit=8, controller="c1")
    pulls.take(pull_of(peer))
    return store, pulls, Emits(store, pulls), peer


async def test_messages_of_one_tick_share_a_call_and_an_answer() -> None:
    store, _, emits, peer = await serving()
    for n in (1, 2):
        emits.emit_soon(peer, emit(n))
    emits.emit_soon(peer, emit(1, "t/b"))
    await settle()
    [(rows, answer)] = store.emits
    assert [(row.live, row.n) for row in rows] == [(LIVE, 1), (LIVE, 2), ("t/b", 1)]
    with emits.watch(LIVE) as woken, emits.watch("t/c") as other:
        answer.set_result([o.Emitted(1), o.Emitted(2), o.Emitted(1)])
        await settle()
        assert (woken.is_set(), other.is_set()) == (True, False)
    assert peer.told == [m.Emitted(LIVE, 1, 2), m.Emitted("t/b", 1, 1)]
    assert (peer.answered, emits.stored) == (3, 3)
    assert emits._watched == {}, "nothing is kept of watchers that have gone"


async def test_a_worker_is_asked_for_what_is_missing() -> None:
    store, _, emits, peer = await serving()
    emits.emit_soon(peer, emit(3))
    await settle()
    store.emits[0][1].set_result([o.Gap(1)])
    await settle()
    assert peer.told == [m.Emitted(LIVE, 1, 1, again=True)]


async def test_a_superseded_generation_is_told_so() -> None:
    store, pulls, emits, peer = await serving()
    emits.emit_soon(peer, emit(1))
    await settle()
    store.emits[0][1].set_result([o.Stale(Generation("B#1", 2))])
    await settle()
    assert (peer.told, len(pulls), emits.stale) == ([m.Stale(LIVE, 1)], 0, 1)


async def test_the_runtime_of_an_ended_live_is_told_so() -> None:
    store, pulls, emits, peer = await serving()
    emits.emit_soon(peer, emit(1))
    await settle()
    store.emits[0][1].set_result([o.Ended()])
    await settle()
    assert peer.told == [m.Ended(LIVE, 1)] and len(pulls) == 0 and emits.stale == 0


async def test_a_call_that_failed_is_repeated_while_its_pull_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulls_module, "RETRY_S", 0)
    store, pulls, emits, peer = await serving()
    emits.emit_soon(peer, emit(1))
    await settle()
    for _ in range(2):
        store.emits[-1][1].set_exception(StoreUnavailable("gone", unknown=True))
        await settle()
        await asyncio.sleep(0.001)
        await settle()
        assert store.emits[-1][0] == [emit(1)] and not store.emits[-1][1].done()
    assert (len(store.emits), peer.answered) == (3, 0)
    pulls.drop_all(peer)
    store.emits[-1][1].set_exception(StoreUnavailable("gone", unknown=True))
    await settle()
    await asyncio.sleep(0.001)
    await settle()
    assert (len(store.emits), peer.answered, peer.told) == (3, 1, [])
