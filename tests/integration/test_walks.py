"""`make walks` works on the source as it is, and leaves out tasks that are there."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from tests import walks
from tests.harness.fleet import Record


async def test_a_create_is_walked() -> None:
    async with walks.deployment(Record(), with_loops=True) as (made, _):
        with walks.Calls() as calls:
            await made.create("second")
        tasks = {walks.name_of(task) for task in asyncio.all_tasks()}
    path = calls.walk().path
    assert {"dispatch/api/create.py", "store/steps/api.py", "store/link/link.py"} <= {*path}
    assert all(here != there for here, there in pairwise(path)), "an entry comes from another file"
    assert walks.ALWAYS | walks.ACTS.keys() <= tasks, "tests/walks.py leaves out tasks that have another name now"
