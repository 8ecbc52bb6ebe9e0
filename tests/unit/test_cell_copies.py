"""Copies of the configuration and the key ring: every cell comes to have the newest, whatever a cell forgets."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhsched.dispatch.cells import copies
from dhsched.dispatch.cells.copies import Copies
from dhsched.errors import StoreUnavailable
from dhsched.store.reaching import ReachedCell
from dhsched.store.records.config import Copy, What

Rows = tuple[tuple[str, bytes, bytes], ...]
GPU: Rows = (("pools", b"gpu", b"{}"),)
CPU: Rows = (("pools", b"cpu", b"{}"), ("tenants", b"acme", b"{}"))


class Kept:
    """The configuration and the keys of one cell, in memory; `take_over` is the rule of copy_config.lua."""

    def __init__(self) -> None:
        self.now: dict[What, Copy] = {"config": Copy(0, ()), "keys": Copy(0, ())}
        self.read: list[What] = []
        self.fails = False
        self.changing = False

    async def revs(self) -> dict[What, int]:
        if self.fails:
            raise StoreUnavailable("away", unknown=False)
        return {what: copy.rev for what, copy in self.now.items()}

    async def copy(self, what: What) -> Copy | None:
        self.read.append(what)
        return None if self.changing else self.now[what]

    async def take_over(self, what: What, copy: Copy, *, also_equal: bool) -> bool:
        if self.fails:
            raise StoreUnavailable("away", unknown=True)
        mine = self.now[what].rev
        if copy.rev < mine or (copy.rev == mine and not also_equal):
            return False
        self.now[what] = copy
        return True


class Cell:
    """One cell as the copies see it."""

    def __init__(self, name: str, kept: Kept) -> None:
        self.name = name
        self.linked = True
        self.records = SimpleNamespace(config=kept)
        self.store = SimpleNamespace(records=self.records)
        self.lists: list[list[str]] = []
        self.records.cells = SimpleNamespace(keep=self.keep)

    async def keep(self, names: list[str]) -> None:
        self.lists.append(names)


class Cells:
    """Some cells, and the copies of one replica."""

    def __init__(self, names: str = "abc") -> None:
        self.kept = {name: Kept() for name in names}
        self.cells = {name: Cell(name, kept) for name, kept in self.kept.items()}
        self.copies = self.replica()

    def replica(self) -> Copies:
        return Copies([cast(ReachedCell, cast(Any, each)) for each in self.cells.values()])

    def put(self, name: str, rev: int, rows: Rows, what: What = "config") -> None:
        self.kept[name].now[what] = Copy(rev, rows)

    def all(self, what: What = "config") -> list[Copy]:
        return [kept.now[what] for kept in self.kept.values()]


@pytest.mark.parametrize("newest", ["a", "b", "c"])
async def test_the_newest_is_copied_whole_to_every_other_cell(newest: str) -> None:
    world = Cells()
    for name in "abc":
        world.put(name, 3, GPU)
    world.put(newest, 4, CPU)
    world.put(newest, 9, GPU, "keys")
    await world.copies.round()
    assert world.all() == [Copy(4, CPU)] * 3 and world.all("keys") == [Copy(9, GPU)] * 3


async def test_a_first_cell_that_comes_back_older_is_given_the_newest() -> None:
    world = Cells("ab")
    world.put("a", 5, CPU)
    await world.copies.round()
    world.put("a", 2, GPU)  # As it was.
    await world.copies.round()
    assert world.all() == [Copy(5, CPU)] * 2
    world.put("a", 0, ())  # It has lost everything.
    await world.copies.round()
    assert world.all() == [Copy(5, CPU)] * 2


async def test_of_two_that_are_equally_new_the_first_cell_is_right() -> None:
    world = Cells()
    world.put("a", 5, GPU)
    for name in "bc":
        world.put(name, 5, CPU)
    await world.copies.round()
    assert world.all() == [Copy(5, GPU)] * 3
    world = Cells()
    world.put("a", 4, GPU)
    world.put("b", 5, GPU)
    world.put("c", 5, CPU)
    await world.copies.round()
    assert world.all() == [Copy(5, GPU)] * 3, "the first of those that are the newest"


async def test_contents_are_compared_from_time_to_time_and_revisions_always(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Cells("ab")
    await world.copies.round()
    world.put("b", 0, CPU)
    for kept in world.kept.values():
        kept.read.clear()
    await world.copies.round()
    assert world.kept["a"].read == world.kept["b"].read == [], "nothing is read whole while the revisions are equal"
    monkeypatch.setattr(copies, "WHOLE_S", 0.0)
    world.copies = world.replica()
    await world.copies.round()
    assert world.all() == [Copy(0, CPU)] * 2, "the first cell that has anything is right"
    world.put("b", 0, GPU)
    await world.copies.round()
    assert world.all() == [Copy(0, CPU)] * 2, "and again"


@pytest.mark.parametrize("how", ["linked", "fails"])
async def test_a_cell_that_is_away_holds_up_no_other_and_is_brought_up_to_date_later(how: str) -> None:
    world = Cells()
    away: Any = world.cells["b"] if how == "linked" else world.kept["b"]
    setattr(away, how, how == "fails")
    world.put("a", 7, CPU)
    await world.copies.round()
    assert world.all() == [Copy(7, CPU), Copy(0, ()), Copy(7, CPU)]
    setattr(away, how, how == "linked")
    await world.copies.round()
    assert world.all() == [Copy(7, CPU)] * 3


async def test_what_changed_while_it_was_read_is_copied_in_the_next_round() -> None:
    world = Cells("ab")
    world.put("a", 7, CPU)
    world.kept["a"].changing = True
    await world.copies.round()
    assert world.kept["b"].now["config"] == Copy(0, ())
    world.kept["a"].changing = False
    await world.copies.round()
    assert world.all() == [Copy(7, CPU)] * 2


async def test_a_cell_that_got_something_newer_meanwhile_keeps_it() -> None:
    world = Cells("ab")
    world.put("a", 7, CPU)

    class Late(Kept):
        async def take_over(self, what: What, copy: Copy, *, also_equal: bool) -> bool:
            self.now["config"] = Copy(8, GPU)  # Another replica has copied since the revisions were read.
            return await super().take_over(what, copy, also_equal=also_equal)

    late = Late()
    world.kept["b"] = late
    world.cells["b"].records.config = late
    await world.copies.round()
    assert late.now["config"] == Copy(8, GPU)
    await world.copies.round()
    assert world.kept["a"].now["config"] == Copy(8, GPU)


async def test_a_first_cell_that_has_lost_everything_empties_no_other() -> None:
    world = Cells()
    for name in "bc":
        world.put(name, 0, CPU, "keys")  # The first secrets are made without a revision.
    await world.copies.round()
    assert world.all("keys") == [Copy(0, CPU)] * 3


async def test_nothing_is_written_in_a_first_cell_that_lacks_changes_until_they_are_back_or_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Cells("ab")
    for name in "ab":
        world.put(name, 20, CPU)
    await world.copies.round()
    world.copies.refuse_older()
    world.cells["b"].linked = False
    world.put("a", 15, GPU)
    await world.copies.round()
    with pytest.raises(StoreUnavailable, match="cell a has forgotten changes"):
        world.copies.refuse_older()
    world.cells["b"].linked = True
    await world.copies.round()
    world.copies.refuse_older()
    assert world.all() == [Copy(20, CPU)] * 2
    for name in "ab":
        world.put(name, 3, GPU)  # Both were restored.
    await world.copies.round()
    world.copies.refuse_older()
    world.put("a", 2, GPU)
    world.cells["b"].linked = False
    await world.copies.round()
    monkeypatch.setattr(copies, "FORGOTTEN_S", 0.0)
    world.copies.refuse_older()


async def test_a_cell_that_has_forgotten_the_list_of_cells_gets_it_back() -> None:
    world = Cells("ab")
    await world.copies.round()
    assert [each.lists for each in world.cells.values()] == [[["a", "b"]]] * 2


async def test_who_waits_for_a_round_is_content_with_one_that_begins_meanwhile() -> None:
    world = Cells("ab")
    world.put("a", 7, CPU)
    rounds = [asyncio.ensure_future(world.copies.round()) for _ in range(5)]
    await asyncio.gather(*rounds)
    assert world.copies._rounds == 2, "the one that was under way, and one for all others"
    assert world.all() == [Copy(7, CPU)] * 2


STEP = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 2), st.integers(0, 9)),
    st.tuples(st.just("forget"), st.integers(0, 2), st.integers(0, 3)),
    st.tuples(st.just("away"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("round"), st.integers(0, 1), st.just(0)),
)


@settings(max_examples=200)
@given(steps=st.lists(STEP, max_size=40))
def test_whatever_happened_all_cells_end_with_the_newest_of_the_first_that_has_it(
    steps: list[tuple[str, int, int]],
) -> None:
    """Two replicas copy at any time; a cell goes back to an earlier revision with any contents."""

    async def play() -> None:
        world = Cells()
        others = world.replica()
        for what, n, given_ in steps:
            name = "abc"[n % 3]
            now = world.kept[name].now["config"]
            if what == "write":
                world.put(name, now.rev + 1, (("pools", b"p%d" % given_, b""),))
            elif what == "forget":
                world.put(name, max(0, now.rev - given_), (("pools", b"old%d" % given_, b""),))
            elif what == "away":
                world.cells[name].linked = not given_
            else:
                await (world.copies if n else others).round()
        for each in world.cells.values():
            each.linked = True
        last = world.replica()
        highest = max(copy.rev for copy in world.all())
        newest = next((copy for copy in world.all() if copy.rev == highest and copy.rows), None)
        await last.round()
        assert newest is None or world.all() == [newest] * 3

    asyncio.run(play())


async def test_nothing_is_written_in_a_first_cell_whose_revisions_are_not_known() -> None:
    """It fails over: what it has forgotten is seen only when it is back, and the write would be undone then."""
    world = Cells("ab")
    for name in "ab":
        world.put(name, 20, CPU)
    await world.copies.round()
    for how in ("linked", "fails"):
        away: Any = world.cells["a"] if how == "linked" else world.kept["a"]
        setattr(away, how, how == "fails")
        await world.copies.round()
        with pytest.raises(StoreUnavailable, match="cell a cannot be asked") as refused:
            world.copies.refuse_older()
        assert not refused.value.unknown
        setattr(away, how, how == "linked")
        await world.copies.round()
        world.copies.refuse_older()


async def test_the_last_pool_that_is_deleted_is_deleted_in_every_cell() -> None:
    world = Cells()
    for name in "abc":
        world.put(name, 4, GPU)
    world.put("a", 5, ())
    await world.copies.round()
    assert world.all() == [Copy(5, ())] * 3


async def test_a_cell_without_a_key_empties_no_other() -> None:
    """A ring has secrets from its first read on: one without any was lost."""
    world = Cells()
    for name in "abc":
        world.put(name, 4, GPU, "keys")
    world.put("a", 5, (), "keys")
    await world.copies.round()
    assert [each.rows for each in world.all("keys")] == [(), GPU, GPU]


async def test_of_two_equally_new_the_one_that_has_anything_is_copied() -> None:
    world = Cells("ab")
    world.put("a", 5, ())
    world.put("b", 5, GPU)
    await world.copies.round()
    assert world.all() == [Copy(5, GPU)] * 2


async def test_a_cell_that_has_lost_all_empties_no_other_that_could_not_be_read_just_now() -> None:
    world = Cells("ab")
    world.put("a", 5, GPU)
    world.put("b", 5, ())
    reads = [None, Copy(5, GPU)]

    async def copy(what: What) -> Copy | None:
        return reads.pop(0) if what == "config" and reads else world.kept["a"].now[what]

    world.cells["a"].records.config.copy = copy
    await world.copies.round()
    assert world.kept["a"].now["config"] == Copy(5, GPU)
