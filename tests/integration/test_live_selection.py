"""Labels of lives, lists by filters, and the end of many lives, over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from typer.testing import CliRunner

from dhsched import cli
from dhsched.client import Client, Unreachable
from dhsched.dispatch.api import live_lists, selection
from dhsched.dispatch.commit import retry_unknown
from dhsched.errors import StoreRefused, StoreUnavailable
from tests.harness.servers import empty_server
from tests.harness.serving import Api, serving


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with empty_server("valkey") as server, serving(server.address) as api:
        await api.configure()
        await api.workers(2, capacity=100)
        yield api


async def listed(api: Api, query: str) -> list[str]:
    status, page = await api("GET", f"/v1/lives?{query}")
    assert status == 200, page
    return [each["live_id"] for each in page["lives"]]


async def test_labels_come_with_create_and_a_change_replaces_them_and_the_metadata(api: Api) -> None:
    labels = ["user=7", "plan=free", "user=7"]
    assert (await api.create("L", labels=labels, metadata={"a": 1}))[0] == 201
    live = (await api("GET", "/v1/lives/L"))[1]
    assert (live["labels"], live["metadata"]) == (["plan=free", "user=7"], {"a": 1})
    status, live = await api("PATCH", "/v1/lives/L", {"labels": ["plan=paid"]})
    assert (status, live["labels"], live["metadata"]) == (200, ["plan=paid"], {"a": 1})
    status, live = await api("PATCH", "/v1/lives/L", {"metadata": {}})
    assert (status, live["labels"], live["metadata"]) == (200, ["plan=paid"], {})
    assert (await api("PATCH", "/v1/lives/L", {"labels": []}))[1]["labels"] == []
    # Whatever was changed since, the same create is the same create; with other labels it is another one.
    assert (await api.create("L", labels=labels, metadata={"a": 1}))[0] == 200
    assert (await api.create("L", labels=["user=8"], metadata={"a": 1}))[1]["code"] == "CONFLICT"

    await api.context.audit.written()
    entries = (await api("GET", "/v1/audit"))[1]["entries"]
    assert sum(entry["endpoint"] == "change_live" for entry in entries) == 3
    assert (await api("PATCH", "/v1/lives/nobody", {"labels": []}))[1]["code"] == "NOT_FOUND"
    assert (await api("POST", "/v1/lives/L/end", {}))[0] == 200
    assert (await api("PATCH", "/v1/lives/L", {"labels": []}))[1]["code"] == "ENDED"


async def test_metadata_has_the_same_bounds_in_a_change_as_at_create(api: Api) -> None:
    """As it is stored, not as it was sent: `1e15` takes four bytes in a request, and eighteen in the store."""
    metadata = {"text": "x" * 63_000, "numbers": [1e15] * 400}
    body = json.dumps({"metadata": metadata}).replace("1000000000000000.0", "1e15").replace(" ", "")
    assert len(body) < 65_536
    headers = {"Content-Type": "application/json"}
    assert (await api.create("L"))[0] == 201
    async with api.client.request("PATCH", "/v1/lives/L", data=body, headers=headers) as response:
        assert (response.status, (await response.json())["code"]) == (400, "BAD_REQUEST")


@pytest.mark.parametrize(
    "wrong",
    [["a b"], ["x" * 65], [""], ["é"], [f"l{n}" for n in range(33)], [f"{n:02}" + "x" * 62 for n in range(17)]],
)
async def test_labels_have_bounds(api: Api, wrong: list[str]) -> None:
    assert (await api.create("L", labels=wrong))[0] == 400
    assert (await api.create("L"))[0] == 201
    assert (await api("PATCH", "/v1/lives/L", {"labels": wrong}))[0] == 400


async def test_a_live_is_listed_if_it_matches_every_filter(api: Api) -> None:
    for number in range(6):
        plan = "plan=free" if number % 2 else "plan=paid"
        assert (await api.create(f"L{number}", labels=[plan, f"n={number}"]))[0] == 201
    assert await listed(api, "label=plan=free") == ["L1", "L3", "L5"]
    assert await listed(api, "label=plan=free,n=3") == ["L3"]
    assert await listed(api, "label=plan") == [] == await listed(api, "label=plan=free&state=ended")
    assert await listed(api, "age_s=0&label=plan=free") == ["L1", "L3", "L5"]
    assert await listed(api, "age_s=1000") == [] == await listed(api, "idle_s=1000")
    await make_older(api, "L2", created_at=1)
    await make_older(api, "L4", seen="0 1")
    assert (await listed(api, "age_s=1000"), await listed(api, "idle_s=1000")) == (["L2"], ["L4"])
    # Input that no look has seen yet: it is not idle.
    await make_older(api, "L4", cursors="1 0 0 0 0 ")
    assert await listed(api, "idle_s=1000") == []
    await make_older(api, "L4", cursors="0 0 0 0 0 ")
    epoch = (await api("GET", "/v1/lives/L5"))[1]["epoch"]
    await make_older(api, "L5", stalled=f"{epoch} 0")
    assert await listed(api, "stalled=true") == ["L5"]
    assert await listed(api, "stalled=false") == ["L0", "L1", "L2", "L3", "L4"]
    for wrong in ("label=", "label=a,,b", "age_s=-1", "idle_s=x", "stalled=maybe", "name=x"):
        assert (await api("GET", f"/v1/lives?{wrong}"))[0] == 400, wrong


async def make_older(api: Api, live: str, **fields: Any) -> None:
    store = api.context.store
    words = [word for name, value in fields.items() for word in (name, value)]
    await store.link.call("HSET", store.keys.of("live", f"default/{live}"), *words)


async def test_many_lives_end_by_a_filter_some_with_each_call(api: Api) -> None:
    for number in range(7):
        assert (await api.create(f"L{number}", labels=["old"] if number else []))[0] == 201
    assert (await api("POST", "/v1/lives/L1/end", {}))[0] == 200
    status, problem = await api("POST", "/v1/end-lives", {})
    assert (status, problem["code"]) == (422, "UNBOUNDED")
    assert (await api("POST", "/v1/end-lives", {"label": "old", "limit": 101}))[0] == 400
    status, page = await api("POST", "/v1/end-lives", {"label": "old", "limit": 3})
    assert (status, page) == (200, {"live_ids": ["L2", "L3", "L4"], "more": True, "next": "L4"})
    status, page = await api("POST", "/v1/end-lives", {"label": "old", "limit": 3, "after": page["next"]})
    assert (status, page) == (200, {"live_ids": ["L5", "L6"], "more": False, "next": None})
    assert await listed(api, "state=open") == ["L0"]
    await api.context.audit.written()
    entries = (await api("GET", "/v1/audit"))[1]["entries"]
    noted = [entry["path"] for entry in entries if entry["endpoint"] == "end_lives" and entry["status"] == 200]
    lines = [f"/v1/lives/L{number}/end" for number in range(2, 7)]
    assert sorted(noted) == ["/v1/end-lives"] * 2 + lines, "the trail has each live, as after an end of its own"


async def test_an_end_that_fails_leaves_none_of_the_others_behind(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        assert (await api.create(f"L{number}"))[0] == 201
    end_live, ended = api.context.store.end_live, list[str]()

    async def fails_once(*, live: str, after_pending: bool) -> Any:
        if live == "default/L1":
            raise StoreRefused("as told", code="OOM")
        await asyncio.sleep(0.05)
        ended.append(live)
        return await end_live(live=live, after_pending=after_pending)

    monkeypatch.setattr(api.context.store, "end_live", fails_once)
    status, problem = await api("POST", "/v1/end-lives", {"age_s": 0})
    assert (status, problem["code"]) == (507, "STORE_FULL")
    assert ended == ["default/L0", "default/L2", "default/L3"], "the answer came when all had been tried"


async def test_all_ends_of_a_call_have_one_deadline(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_lists, "ENDS_AT_ONCE", 1)
    for number in range(3):
        assert (await api.create(f"L{number}"))[0] == 201

    async def is_away(**_: Any) -> Any:
        raise StoreUnavailable("as told", unknown=False)

    deadlines: list[float] = []

    async def noted(*arguments: Any, until: float) -> Any:
        deadlines.append(until)
        return await retry_unknown(*arguments, until=0.0)

    monkeypatch.setattr(api.context.store, "end_live", is_away)
    monkeypatch.setattr(live_lists, "retry_unknown", noted)
    assert (await api("POST", "/v1/end-lives", {"age_s": 0}))[0] == 503
    assert len(deadlines) == 3 and len({*deadlines}) == 1, (
        "lives that wait for their turn do not begin a deadline of their own"
    )


async def test_one_call_reads_a_bounded_number_of_lives(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "SCAN_STEP", 3)
    monkeypatch.setattr(selection, "SCAN_MAX", 6)
    await asyncio.gather(*(api.create(f"L{n:02}", labels=["last"] if n == 19 else []) for n in range(20)))
    ended: list[str] = []
    pages, after = 0, dict[str, str]()
    while True:
        page = (await api("POST", "/v1/end-lives", {"label": "last", **after}))[1]
        ended, pages = ended + page["live_ids"], pages + 1
        if not page["more"]:
            break
        after = {"after": page["next"]}
    assert (ended, pages) == (["L19"], 4)


async def test_an_end_of_many_whose_answer_is_lost_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repetition finds other lives than the first call has ended, and would end more than its limit."""
    end = live_lists.LiveLists.end

    async def loses_its_answer(self: live_lists.LiveLists, asked: Any) -> Any:
        answer = await end(self, asked)
        asked.request.transport.abort()
        return answer

    monkeypatch.setattr(live_lists.LiveLists, "end", loses_its_answer)
    async with empty_server("valkey") as server, serving(server.address) as api:
        await api.configure()
        await api.workers(1, capacity=9)
        for number in range(4):
            assert (await api.create(f"L{number}"))[0] == 201
        url = str(api.client.make_url("/"))
        async with Client(url) as client:
            with pytest.raises(Unreachable) as lost:
                await client.end_many(age_s=0.0, limit=1)
            assert lost.value.unknown
        words = ["live", "end", "--age", "0s", "--limit", "1", "--yes", "--url", url]
        result = await asyncio.to_thread(CliRunner().invoke, cli.app, words)
        assert isinstance(result.exception, Unreachable) and result.exception.unknown
        assert await listed(api, "state=open") == ["L2", "L3"]


async def test_the_client_changes_lists_and_ends(api: Api) -> None:
    url = str(api.client.make_url("/"))
    async with Client(url) as client:
        await client.create("anna", live_id="L", labels=["user=7"])
        await client.create("anna", live_id="M")
        assert [each.live_id async for each in client.lives(label="user=7", stalled=False)] == ["L"]
        assert (await client.change("M", labels=["user=7"], metadata={"a": 1})).metadata == {"a": 1}
        done = await client.end_many(label="user=7", age_s=0.0)
        assert (done.live_ids, done.more) == (["L", "M"], False)
