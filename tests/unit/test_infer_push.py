"""One pushed item, with a scripted store: which id it has, what is answered, and what is different for viewers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dhsched.access.callers import OPEN
from dhsched.client.models.input import Pushed, PushText
from dhsched.errors import StoreUnavailable
from dhsched.infer import push
from dhsched.infer.context import InferContext
from dhsched.infer.item_traces import ItemTraces
from dhsched.infer.logs import Logs, worker_bucket
from dhsched.infer.push import endpoints
from dhsched.infer.settings import InferSettings
from dhsched.links import messages as m
from dhsched.ownership import outcomes as o
from dhsched.ownership.limits import DEFAULT_LIMITS
from dhsched.store.records.logs import RuntimeLine
from dhsched.store.steps.redis import Append
from dhsched.web import Problem
from dhsched.web.endpoints import Request

UNKNOWN = StoreUnavailable("no answer", unknown=True)


class Controller:
    """A controller whose store answers what the test says, the last answer again and again."""

    def __init__(self, *answers: Any) -> None:
        self.answers = [*answers] or [o.Appended(7)]
        self.rows: list[Append] = []
        self.of_viewers: list[tuple[str, str, int]] = []
        self.said: list[tuple[str, Any]] = []
        self.counted: list[tuple[Any, str]] = []
        self.over_pending: set[str] = set()
        self.memory_share = 0.0
        self.traces: ItemTraces | None = None
        self.push_text = endpoints(cast(InferContext, self.context()))[0].handler

    def context(self) -> Any:
        async def append(row: Append) -> Any:
            self.rows.append(row)
            return self.answer()

        async def append_soon(rows: Sequence[Append], controller: str, pending_max: int) -> list[Any]:
            [row] = rows
            self.of_viewers.append((row.request, controller, pending_max))
            return [self.answer()]

        async def say(live: str, item: Any) -> None:
            self.said.append((live, item))

        made: Any = SimpleNamespace(
            of=lambda live: made,
            settings=InferSettings(deadline_s=60),
            service=SimpleNamespace(quotas=self),
            pulls=SimpleNamespace(append=append, traces=self.traces),
            store=SimpleNamespace(append_soon=append_soon, limits=replace(DEFAULT_LIMITS, pending_max=40)),
            records=SimpleNamespace(lives=SimpleNamespace(note_said=say)),
            metrics=SimpleNamespace(pushed=lambda outcome, took_s, tenant: self.counted.append((outcome, tenant))),
            memory_share=self.memory_share,
        )
        return made

    def answer(self) -> Any:
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, Exception):
            raise found
        return found

    def too_much_pending(self, tenant: str) -> Problem:
        return Problem("QUOTA", f"too much of {tenant}")

    async def push(self, text: str = "hello", *, role: str = "app", key: str = "", **more: Any) -> Pushed:
        headers = {"Idempotency-Key": key} if key else {}
        request = cast(Any, SimpleNamespace(headers=headers))
        caller = replace(OPEN, tenant="mine", role=role)
        body = PushText(text, **more)
        asked = Request(request, SimpleNamespace(live_id="a"), None, body, "r", cast(Any, None), caller)
        pushed: Pushed = await self.push_text(asked)
        return pushed


async def test_an_item_is_stored_under_the_id_that_it_came_with() -> None:
    controller = Controller(o.Appended(7, dropped=2))
    pushed = await controller.push(request_id="r-1", boundary=True)
    assert (pushed.live_id, pushed.request_id, pushed.seq, pushed.dropped) == ("a", "r-1", 7, 2)
    assert not pushed.duplicate
    [row] = controller.rows
    assert (row.live, row.request) == ("mine/a", "r-1") and row.item.endswith(b"hello")
    assert (await controller.push(key="k-1")).request_id == "k-1"
    first, second = (await controller.push()).request_id, (await controller.push()).request_id
    assert first and second and first != second, "without an id the controller makes one"
    assert controller.counted[0] == (o.Appended(7, dropped=2), "mine") and controller.of_viewers == []


async def test_an_item_that_was_stored_before_is_said_to_be() -> None:
    pushed = await Controller(o.Duplicate()).push(request_id="r-1")
    assert pushed.duplicate and pushed.seq is None and pushed.request_id == "r-1"


async def test_an_item_whose_outcome_is_unknown_is_repeated_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "RETRY_S", 0.001)
    controller = Controller(UNKNOWN, UNKNOWN, o.Appended(7))
    assert (await controller.push(request_id="r-1")).seq == 7
    assert [row.request for row in controller.rows] == ["r-1"] * 3 and len({*controller.rows}) == 1
    viewer = Controller(UNKNOWN, o.Appended(7))
    assert (await viewer.push(request_id="r-1", role="room")).seq == 7
    assert [request for request, *_ in viewer.of_viewers] == ["viewer:r-1"] * 2


async def test_a_tenant_with_too_much_pending_may_only_interrupt() -> None:
    controller = Controller()
    controller.over_pending = {"other"}
    assert (await controller.push()).seq == 7
    controller.over_pending = {"mine"}
    with pytest.raises(Problem, match="too much of mine"):
        await controller.push()
    assert (await controller.push("", kind="interrupt")).seq == 7


@pytest.mark.parametrize("how", [{"role": "room"}, {"viewer": True}])
async def test_items_of_viewers_have_ids_of_their_own_and_a_part_of_the_queue(how: dict[str, Any]) -> None:
    controller = Controller()
    pushed = await controller.push(request_id="r-1", identity="Zoë", **how)
    assert pushed.request_id == "r-1" and controller.rows == []
    assert controller.of_viewers == [("viewer:r-1", "", 10)], "without a name: whoever holds the pull is woken"
    [(live, item)] = controller.said
    assert (live, item.identity, item.kind, item.seq) == ("mine/a", "Zoë", "text", 7)
    await controller.push(**how)
    assert len(controller.said) == 1, "nobody is named"


async def test_a_full_queue_is_named_with_the_viewers_part() -> None:
    full = o.TooManyPending(12)
    with pytest.raises(Problem, match="up to 10; wait"):
        await Controller(full).push(role="room")
    with pytest.raises(Problem) as refused:
        await Controller(full).push()
    assert refused.value.code == "TOO_MANY_PENDING" and "up to 10" not in refused.value.detail
    with pytest.raises(Problem, match="ended"):
        await Controller(o.Ended()).push(role="room")


class Lines:
    """The store's log records: at most `kept` lines of each call are kept."""

    def __init__(self, kept: int = 100) -> None:
        self.calls: list[list[RuntimeLine]] = []
        self.kept = kept

    def write(
        self, lines: Sequence[RuntimeLine], lines_max: int, bytes_max: int, *, deadline_s: float
    ) -> asyncio.Future[int]:
        self.calls.append([*lines])
        writing = asyncio.get_running_loop().create_future()
        writing.set_result(min(len(lines), self.kept))
        return writing


def lines_of(count: int) -> m.Log:
    return m.Log("default/a", 3, [m.LogLine("info", b"line %d \x1b[31m" % n) for n in range(count)])


def logs_of(records: Lines, full: Callable[[], bool] = lambda: False, **settings: Any) -> Logs:
    return Logs(cast(Any, records), InferSettings(**settings), full)


async def test_lines_are_written_for_the_worker_that_sent_them_and_counted() -> None:
    records = Lines(kept=1)
    logs = logs_of(records)
    logs.take(worker_bucket(), "w#1", lines_of(3))
    await asyncio.wait_for(logs.written(), 60)
    await asyncio.sleep(0)
    call = [line for lines in records.calls for line in lines]
    assert [(line.live, line.worker, line.epoch, line.source) for line in call] == [("default/a", "w#1", 3, "info")] * 3
    assert call[1].text.startswith(b"line 1") and b"\x1b" not in call[1].text
    assert logs.kept == len(records.calls) and logs.kept + logs.dropped == 3, "the fence refuses all but one of a call"


async def test_lines_over_a_worker_s_limit_are_dropped() -> None:
    records = Lines()
    logs, bucket = logs_of(records, log_lines_per_s=100_000.0), worker_bucket()
    for _ in range(20):
        logs.take(bucket, "w#1", lines_of(64))
    await asyncio.wait_for(logs.written(), 60)
    await asyncio.sleep(0)
    assert logs.kept + logs.dropped == 20 * 64 and 0 < logs.kept < 20 * 64
    assert max(map(len, records.calls)) <= 50


@pytest.mark.parametrize("full, lines_max", [(True, 1000), (False, 0)])
async def test_no_line_is_written_to_a_full_store_nor_where_none_is_kept(full: bool, lines_max: int) -> None:
    records = Lines()
    logs = logs_of(records, lambda: full, log_lines_max=lines_max)
    logs.take(worker_bucket(), "w#1", lines_of(3))
    await asyncio.wait_for(logs.written(), 60)
    assert records.calls == [] and logs.dropped == 3
