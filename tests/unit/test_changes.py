"""The table of the change feed, pure: which differences make batches, and where a reader goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dhsched.access.callers import OPEN
from dhsched.client.models.summary import LiveNow, WorkerNow
from dhsched.dispatch.api.changes import ChangesFeed, ChangesQuery
from dhsched.dispatch.view.changes import BATCHES_MAX, ROWS_MAX, Known, Table, differences, is_due
from dhsched.errors import BadValue
from dhsched.placement.index import WorkerView


def known(worker: str, rev: int = 1, status: str = "ready", **slots: str) -> Known:
    tags = {f"t/{live}@1": state for live, state in slots.items()}
    states = [*tags.values()]
    counted = {state: states.count(state) for state in states}
    now = WorkerNow(worker, "gpu", status, len(tags), 8, counted.get("starting", 0), counted)
    return Known(now, rev, tags)


def row(known: Known) -> WorkerView:
    made = WorkerView(known.now.worker)
    made.pool, made.capacity, made.row_rev = known.now.pool, known.now.capacity, known.rev
    made.barred = "" if known.now.status == "ready" else known.now.status
    return made


def test_a_slot_that_is_new_other_or_left_is_a_difference() -> None:
    before = {"t/a@1": "running", "t/b@2": "starting", "t/c@3": "running"}
    after = {"t/b@2": "running", "t/c@3": "running", "t/d@4": "starting"}
    found = {*differences("w#1", before, after)}
    assert found == {
        LiveNow("t", "a", "w#1", 1, ""),
        LiveNow("t", "b", "w#1", 2, "running"),
        LiveNow("t", "d", "w#1", 4, "starting"),
    }


def test_the_first_reading_is_no_change_and_the_second_is() -> None:
    table = Table()
    table.replace({"w#1": known("w#1", a="running")}, [])
    assert table.whole and (table.number, [*table.batches]) == (0, [])
    table.replace({"w#1": known("w#1", 2, a="departing")}, [])
    [batch] = table.after(0) or []
    assert [each.slots for each in batch.workers] == [{"departing": 1}]
    assert [(each.live_id, each.state) for each in batch.lives] == [("a", "departing")]


def test_a_reading_without_a_difference_makes_no_batch() -> None:
    table = Table()
    for rev in (1, 2):
        table.replace({"w#1": known("w#1", rev, a="running")}, [])
    assert table.number == 0 and table.known["w#1"].rev == 2


def test_a_worker_that_is_gone_takes_its_slots_with_it() -> None:
    table = Table()
    table.replace({"w#1": known("w#1", a="running"), "w#2": known("w#2")}, [])
    table.replace({}, ["w#1"])
    [batch] = table.after(0) or []
    assert batch.gone == ["w#1"] and [(each.live_id, each.state) for each in batch.lives] == [("a", "")]
    assert [*table.known] == ["w#2"]


def test_many_rows_are_several_batches() -> None:
    table = Table()
    table.replace({}, [])
    table.replace({f"w#{n}": known(f"w#{n}") for n in range(2 * ROWS_MAX + 1)}, [])
    assert [len(each.workers) for each in table.after(0) or []] == [ROWS_MAX, ROWS_MAX, 1]


def test_a_reader_that_is_too_far_behind_or_ahead_begins_again() -> None:
    table = Table()
    for rev in range(BATCHES_MAX + 3):
        table.replace({"w#1": known("w#1", rev, **{f"live{rev}": "running"})}, [])
    newest = table.number
    assert newest == BATCHES_MAX + 2
    assert table.after(newest) == []
    assert len(table.after(newest - BATCHES_MAX) or []) == BATCHES_MAX
    assert table.after(newest - BATCHES_MAX - 1) is None
    assert table.after(newest + 1) is None


def test_which_workers_are_read_again() -> None:
    seen = known("w#1", a="running")
    assert not is_due(seen, row(seen))
    assert is_due(None, row(seen))
    assert is_due(seen, row(known("w#1", 2, a="running"))), "another revision"
    assert is_due(seen, row(known("w#1", status="lost", a="running"))), "the view was corrected"
    starting = known("w#1", a="starting")
    assert is_due(starting, row(starting)), "a claim changes no revision"
    refused = row(known("w#1", -1))
    assert not is_due(None, refused), "known from a refusal alone"


async def test_a_cursor_of_several_cells_is_refused_where_there_is_one() -> None:
    """Its first part may be of this very feed."""
    feed = cast(Any, SimpleNamespace(boot="0000000a", table=Table(whole=True)))
    part = ChangesFeed(cast(Any, None), feed, cast(Any, None))
    for cursor in ("0000000a.1,", "0000000a.1,0000000b.2", ","):
        asked: Any = SimpleNamespace(
            query=ChangesQuery(after=cursor),
            header=lambda name: "text/event-stream" if name == "Accept" else "",
            caller=OPEN,
        )
        with pytest.raises(BadValue, match="of a deployment with several cells"):
            await part.get(asked)
