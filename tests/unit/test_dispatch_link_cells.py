"""The Worker's link to Dispatch where there are several cells: which one is chosen, and when the Worker leaves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from dhsched.client.models.summary import CellOut
from dhsched.links import messages as m
from tests.harness.linking import eventually
from tests.harness.scripted_dispatch import refused, reported, scripted_links


@pytest.fixture
async def links(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    async with scripted_links(monkeypatch) as made:
        yield made


async def test_a_worker_goes_to_another_cell_only_while_dispatch_says_that_it_drains(links: Any) -> None:
    """It was frozen, and reads late where to go: the drain may have been cancelled, and a live placed here."""
    worker = links()
    replica = await worker.serving()
    replica.tell(m.GoTo("b"))  # A report is in flight: its answer may be as old.
    await replica.nth(m.Report)
    replica.tell(m.Reported(1, 1, 1, "draining"))
    await replica.nth(m.Report, 2)
    assert not worker.link.going.is_set()
    replica.tell(m.Reported(2, 1, 1, "ready"))
    await eventually(lambda: worker.link.mode == "ready")
    await eventually(replica.frames.empty)
    assert (worker.link.going.is_set(), worker.link.goes_to) == (False, "")


async def test_a_worker_that_drains_goes_where_it_was_told_last(links: Any) -> None:
    worker = links()
    replica = await worker.serving()
    replica.tell(reported())
    for n, cell in ((2, "b"), (3, "c")):
        replica.tell(m.GoTo(cell), m.GoTo(cell))  # It is repeated until the Worker has gone.
        await replica.nth(m.Report, n)
        assert worker.link.goes_to == cell and not worker.link.going.is_set()
        replica.tell(m.Reported(n, 1, 1, "draining"), m.GoTo(cell))
        await asyncio.wait_for(worker.link.going.wait(), 60)
    assert len(replica.all(m.Report)) == 3


async def test_a_cell_is_chosen_anew_where_no_registration_was_sent(
    links: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy without a Dispatch behind it answers 404, and a cell may go away after it was chosen."""
    worker = links()
    worker.boot.cell = None
    listed: list[list[CellOut]] = [[], [row("b"), row("c", ready=False)], [row("b", ready=False), row("c")]]

    async def cells(url: str, headers: Mapping[str, str]) -> list[CellOut]:
        return listed.pop(0)

    monkeypatch.setattr(worker.link, "_cells", cells)
    worker.refuses = [refused(404), refused(503)]
    replica = await worker.nth()
    assert replica.url.endswith("/v1/workers/link?cell=c") and not listed
    await replica.nth(m.Register)
    worker.refuses = [refused(503)]
    replica.frames.put_nowait(None)
    second = await worker.nth(2)
    assert second.url.endswith("/v1/workers/link?cell=c"), "it may be registered there"


def row(name: str, *, ready: bool = True) -> CellOut:
    return CellOut(name, ready, "")
