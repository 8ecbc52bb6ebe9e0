"""The endpoints over several cells, where one of them was never reached since the replica started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dhsched.dispatch.cells.front import HOME_WRITES, Front
from dhsched.dispatch.cells.served import ServedCell
from dhsched.errors import CellAway, StoreUnavailable
from dhsched.store.link.address import parse_address


def front() -> Front:
    return Front([ServedCell(name, parse_address("redis://h")) for name in "ab"])


async def test_a_worker_is_sent_to_no_cell_that_was_never_reached() -> None:
    asked: Any = SimpleNamespace(body=SimpleNamespace(to_cell="b"), path=SimpleNamespace(worker="w#1"))
    with pytest.raises(StoreUnavailable, match="cell b is not served: its store was not reached yet") as refused:
        await front().drain_worker(asked)
    assert not refused.value.unknown


@pytest.mark.parametrize("name", sorted(HOME_WRITES))
async def test_nothing_is_configured_while_the_first_cell_was_never_reached(name: str) -> None:
    with pytest.raises(CellAway, match="cell a is not served: its store was not reached yet"):
        await front()._in_first_cell(name, cast(Any, None))
