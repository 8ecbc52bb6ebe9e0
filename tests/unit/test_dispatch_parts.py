"""Small parts of dispatch by themselves: the queue for a free slot and calls whose outcome is unknown."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from dhsched.client.models.lives import CreateLive
from dhsched.dispatch.api.create import as_create, digest
from dhsched.dispatch.commit import retry_unknown
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.telemetry.replica_reports import worst
from dhsched.dispatch.view.create_queue import CreateQueue
from dhsched.errors import StoreUnavailable
from dhsched.settings import DispatchSettings
from dhsched.store.records.replicas import LAG_MS, LAGS_MAX, ReplicaReport


def test_the_line_wakes_from_the_front_as_many_as_there_are_slots() -> None:
    line = CreateQueue(3)
    with line.place() as first, line.place() as second, line.place() as third:
        assert len(line) == 3 and line.full
        line.wake(2)
        assert (first.is_set(), second.is_set(), third.is_set()) == (True, True, False)
        line.wake(-1)
        assert not third.is_set()
    assert len(line) == 0 and not line.full


def with_deadline(seconds: float) -> DispatchContext:
    return cast(DispatchContext, SimpleNamespace(settings=DispatchSettings(deadline_s=seconds)))


async def test_a_call_whose_outcome_is_unknown_is_repeated_as_it_was() -> None:
    asked: list[str] = []

    async def call(operation: str = "op-1") -> str:
        asked.append(operation)
        if len(asked) < 3:
            raise StoreUnavailable("no answer", unknown=True)
        return "done"

    assert await retry_unknown(with_deadline(60), "create", call) == "done"
    assert asked == ["op-1"] * 3


async def test_a_call_is_not_repeated_past_the_request_s_deadline() -> None:
    async def call() -> None:
        raise StoreUnavailable("no answer", unknown=True)

    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(retry_unknown(with_deadline(0.25), "create", call), 30)
    with pytest.raises(StoreUnavailable):
        until = asyncio.get_running_loop().time() + 0.25
        await asyncio.wait_for(retry_unknown(with_deadline(60), "create", call, until=until), 30)


def test_equal_parameters_have_equal_fingerprints_and_no_others() -> None:
    def fingerprint(**more: object) -> str:
        return as_create(CreateLive(digital_id="anna", **more)).fingerprint  # type: ignore[arg-type]

    assert fingerprint(metadata={"a": 1, "b": {"c": 2, "d": 3}}) == fingerprint(
        metadata={"b": {"d": 3, "c": 2}, "a": 1}
    )
    different = [
        fingerprint(),
        fingerprint(metadata={"a": 1}),
        fingerprint(config={"a": 1}),
        fingerprint(room="r"),
        fingerprint(priority=2),
        fingerprint(immovable=True),
    ]
    assert len(set(different)) == len(different)
    assert digest("a", "b") != digest("a\n", "b")


def test_the_loops_that_are_the_latest_are_told_of() -> None:
    def report(lags: dict[str, int] | None) -> ReplicaReport:
        return ReplicaReport(role="dispatch", name="d1", version="1", lags=lags)

    few = report(worst({"quick": LAG_MS - 1, "slow": LAG_MS}))
    assert (few.lag_of("quick"), few.lag_of("slow")) == (0, LAG_MS)
    many = report(worst({f"w{n}": LAG_MS + n for n in range(LAGS_MAX + 1)}))
    assert many.lags is not None and len(many.lags) == LAGS_MAX
    assert (many.lag_of("w0"), many.lag_of("w1")) == (None, LAG_MS + 1), "of the least late nothing is known"
    assert report(None).lag_of("slow") is None, "an older replica tells of none"
