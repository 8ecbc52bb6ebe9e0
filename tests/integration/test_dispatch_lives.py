"""Lives over HTTP, as their users meet them."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from dhsched.ownership.items import stored
from dhsched.store.link.address import Address
from dhsched.store.steps.redis import RedisStore
from tests.harness.fleet import PATIENCE_S, until, until_so
from tests.harness.replicas import register
from tests.harness.servers import empty_server
from tests.harness.serving import Api, serving


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """On one kind of server: that both answer the steps alike is what conformance tests."""
    async with empty_server("valkey") as server, serving(server.address) as api:
        await api.configure()
        yield api


async def test_both_servers_serve(server: Address) -> None:
    async with serving(server) as api:
        await api.configure()
        await api.workers(4, capacity=10)
        assert (await api.create("L"))[0] == 201
        assert (await api("GET", "/v1/lives"))[1]["lives"][0]["live_id"] == "L"
        assert len((await api("GET", "/v1/workers"))[1]["workers"]) == 4
        assert (await api("POST", "/v1/lives/L/reassign", {"expected_epoch": 1}))[0] == 200
        assert (await api("GET", "/readyz"))[0] == 200


@pytest.fixture
def no_trail(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the audit trail, whose entries share calls that nobody waits for."""
    monkeypatch.setattr(api.context.audit._writer, "_send", lambda: None)


@pytest.mark.usefixtures("no_trail")
async def test_a_create_costs_one_round_trip_and_its_retry_is_answered_alike(api: Api) -> None:
    await api.workers(4, capacity=10)
    before = api.context.store.link.calls
    status, made = await api.create("L", metadata={"b": 1, "a": [2]})
    assert (status, made["epoch"], api.context.store.link.calls - before) == (201, 1, 1)
    status, again = await api.create("L", metadata={"a": [2], "b": 1})
    assert (status, again) == (200, {**made, "again": True})
    status, problem = await api.create("L", metadata={"a": [3]})
    assert (status, problem["code"]) == (409, "CONFLICT")
    status, live = await api("GET", "/v1/lives/L")
    assert status == 200 and live["metadata"] == {"a": [2], "b": 1} and live["worker"] == made["worker"]


async def test_without_an_id_the_server_makes_one_and_a_key_makes_it_the_same(api: Api) -> None:
    await api.workers(1, capacity=10)
    body = {"digital_id": "anna"}
    first, second = [(await api("POST", "/v1/lives", body))[1]["live_id"] for _ in range(2)]
    assert first != second
    keyed = [await api("POST", "/v1/lives", body, headers={"Idempotency-Key": "user:7/order=1"}) for _ in range(2)]
    assert [status for status, _ in keyed] == [201, 200]
    assert keyed[0][1]["live_id"] == keyed[1][1]["live_id"]


async def test_an_unknown_digital_id_is_looked_up_before_it_is_refused(api: Api) -> None:
    await api.workers(1, capacity=10)
    status, problem = await api.create(digital_id="bob")
    assert (status, problem["code"]) == (404, "NOT_FOUND")
    # Another replica puts it: this one has not heard of it, and must not say that it does not exist.
    async with serving(api.context.store.link.address, name="d2") as other:
        assert (await other("PUT", "/v1/digital-ids/bob", {"pools": [{"pool": "gpu"}]}))[0] == 201
        assert (await api.create(digital_id="bob"))[0] == 201


async def test_labels_that_no_pool_has_are_a_matter_of_configuration(api: Api) -> None:
    await api.workers(1, capacity=1)
    picky = {"pools": [{"pool": "gpu"}], "required_labels": ["gpu_class=h100"]}
    assert (await api("PUT", "/v1/digital-ids/picky", picky))[0] == 201
    status, problem = await api.create(digital_id="picky")
    assert (status, problem["code"]) == (422, "NO_ELIGIBLE_POOL") and "gpu_class=h100" in problem["detail"]
    assert (await api("PUT", "/v1/pools/gpu", {"gpu_class": "h100"}))[0] == 200
    assert (await api.create(digital_id="picky"))[0] == 201


async def test_full_says_what_was_tried_and_explains_itself(api: Api) -> None:
    await api.workers(1, capacity=1)
    status, made = await api.create("A", "?explain=1")
    assert status == 201 and made["explanation"]["candidates"][0]["worker"] == made["worker"]
    status, problem = await api.create("B", "?explain=1")
    assert (status, problem["code"], problem["pools"]) == (503, "FULL", {"gpu": {"load": 1, "capacity": 1}})
    assert problem["refusals"][0]["reason"] == "FULL" and problem["explanation"]["refusals"][0]["reason"] == "FULL"
    status, why = await api("GET", "/v1/lives/B/why")
    assert (status, why["outcome"], why["generation"], why["explained"]) == (200, "Full", None, "then")
    status, why = await api("GET", "/v1/lives/A/why")
    assert (why["outcome"], why["generation"]["worker"], why["explained"]) == ("Committed", made["worker"], "then")
    async with serving(api.context.store.link.address, name="d2") as other:
        assert (await other("GET", "/v1/lives/A/why"))[1]["explained"] == "now"
        assert (await other("GET", "/v1/lives/B/why"))[0] == 404


async def test_a_create_may_wait_for_room(api: Api) -> None:
    await api.workers(1, capacity=1)
    assert (await api.create("A"))[0] == 201
    waiting = asyncio.create_task(api.create("B", "?wait_s=20"))
    await until(lambda: len(api.context.create_queue) == 1, "the create that waits")
    await until(lambda: api.context.service.load.total == 0, "the request to be no load while it waits")
    await api.workers(1, capacity=1, name="late")
    status, made = await asyncio.wait_for(waiting, PATIENCE_S)
    assert (status, made["worker"].partition("#")[0]) == (201, "late0")
    assert (await api.create("C", "?wait_s=0.2"))[0] == 503


async def test_reassign_moves_the_live_that_was_seen_and_no_other(api: Api) -> None:
    await api.workers(3, capacity=10)
    _, made = await api.create("L")
    move = {"expected_epoch": 1, "avoid": [made["worker"]]}
    status, moved = await api("POST", "/v1/lives/L/reassign", move, headers={"Idempotency-Key": "k"})
    assert (status, moved["epoch"]) == (200, 2) and moved["worker"] != made["worker"]
    status, again = await api("POST", "/v1/lives/L/reassign", move, headers={"Idempotency-Key": "k"})
    assert (status, again) == (200, {**moved, "again": True})
    status, problem = await api("POST", "/v1/lives/L/reassign", move)
    assert (status, problem["code"]) == (409, "STALE")
    assert problem["current"] == {"worker": moved["worker"], "epoch": 2}
    _, history = await api("GET", "/v1/lives/L/history")
    assert [(row["epoch"], row["cause"]) for row in history["generations"]] == [(2, "reassign"), (1, "create")]


async def test_a_target_is_met_or_refused(api: Api) -> None:
    [a, b] = await api.workers(2, capacity=1)
    [c] = await api.workers(1, capacity=1, pool="cpu", name="c")
    _, made = await api.create("L")
    other = b if made["worker"] == a else a

    async def move(target: str, epoch: int = 1) -> tuple[int, str]:
        body = {"expected_epoch": epoch, "target": target}
        status, answer = await api("POST", "/v1/lives/L/reassign", body)
        return status, answer.get("code", answer.get("worker"))

    assert await move(c) == (422, "NO_ELIGIBLE_POOL")
    assert await move("nobody#99") == (404, "NOT_FOUND")
    assert (await api("POST", f"/v1/workers/{quote(other)}/cordon"))[0] == 200
    assert await move(other) == (409, "UNPLACEABLE")
    assert (await api("POST", f"/v1/workers/{quote(other)}/uncordon"))[0] == 200
    await api.context.store.set_worker(worker=other, verb="drain")
    assert await move(other) == (409, "DRAINING")
    await api.context.store.set_worker(worker=other, verb="undrain")
    assert await move(other) == (200, other)
    # The slot that it left is departing: that Worker is full until its runtime is gone.
    assert await move(made["worker"], epoch=2) == (503, "FULL")


async def test_a_view_that_is_older_than_the_workers_does_not_say_that_they_never_came() -> None:
    async with empty_server("valkey") as server, serving(server.address, refresh_min_s=60, refresh_max_s=60) as api:
        await api.configure()
        await register(api.context.store, 1, capacity=1)
        assert (await api.create("A"))[0] == 201
        status, problem = await api.create("B")
        assert (status, problem["pools"]) == (503, {"gpu": {"load": 1, "capacity": 1}})
        assert "is full" in problem["detail"]


async def test_end_now_or_after_what_is_pending(api: Api) -> None:
    await api.workers(1, capacity=10)
    await api.create("A"), await api.create("B")
    assert await api("POST", "/v1/lives/A/end") == (200, {"live_id": "A", "state": "ended"})
    assert await api("POST", "/v1/lives/A/end") == (200, {"live_id": "A", "state": "ended"})
    await api.context.store.append_input(live="default/B", kind="text", payload=b"hi", request="r1")
    assert (await api("POST", "/v1/lives/B/end", {"after_pending": True}))[1]["state"] == "closing"
    assert (await api.create("A"))[1]["code"] == "ENDED"
    assert (await api("POST", "/v1/lives/A/reassign", {"expected_epoch": 1}))[0] == 410
    assert (await api("POST", "/v1/lives/nobody/end"))[0] == 404


async def test_dead_letters_are_listed_dropped_and_pushed_again(api: Api) -> None:
    await api.workers(1, capacity=10)
    await api.create("L")
    store = api.context.store
    await store.link.call(
        "RPUSH", store.keys.of("dead", "default/L"), stored("text", b"first", True), stored("text", b"second", False)
    )
    _, found = await api("GET", "/v1/lives/L/dead-letters")
    assert [(each["text"], each["boundary"]) for each in found["items"]] == [("first", True), ("second", False)]
    first, second = (each["id"] for each in found["items"])
    assert (await api("DELETE", f"/v1/lives/L/dead-letters/{first}"))[0] == 204
    assert (await api("DELETE", f"/v1/lives/L/dead-letters/{first}"))[0] == 404
    assert await api("POST", f"/v1/lives/L/dead-letters/{second}/push") == (200, {"live_id": "L", "seq": 1})
    assert (await api("GET", "/v1/lives/L/dead-letters"))[1]["items"] == []


BAD_INPUT: list[tuple[str, str, object, int, str]] = [
    ("POST", "/v1/lives", {"digital_id": "anna", "live_id": "a/b"}, 400, "$.live_id"),
    ("POST", "/v1/lives", {"digital_id": "anna", "live_id": "a\n"}, 400, "live_id"),
    ("POST", "/v1/lives", {"digital_id": "anna", "live_id": ""}, 400, "$.live_id"),
    ("POST", "/v1/lives", {"digital_id": "anna", "live_id": "a" * 65}, 400, "$.live_id"),
    ("POST", "/v1/lives", {"digital_id": 7}, 400, "$.digital_id"),
    ("POST", "/v1/lives", {"digital_id": "anna", "priority": 9}, 400, "$.priority"),
    ("POST", "/v1/lives", {"digital_id": "anna", "metadata": "text"}, 400, "$.metadata"),
    ("POST", "/v1/lives", {"digital_id": "anna", "colour": "red"}, 400, "$.colour"),
    ("POST", "/v1/lives", {"digital_id": "anna", "metadata": {"a": "b" * 70_000}}, 413, "65536"),
    ("POST", "/v1/lives?wait_s=-1", {"digital_id": "anna"}, 400, "$.wait_s"),
    ("POST", "/v1/lives?explain=maybe", {"digital_id": "anna"}, 400, "$.explain"),
    ("POST", "/v1/lives/L/reassign", {}, 400, "$.expected_epoch"),
    ("POST", "/v1/lives/L/reassign", {"expected_epoch": 1, "target": "w1"}, 400, "$.target"),
    ("POST", "/v1/lives/L/end", {"after_pending": "yes"}, 400, "$.after_pending"),
    ("GET", "/v1/lives/a%20b", None, 400, "$.live_id"),
    ("GET", "/v1/lives?limit=0", None, 400, "$.limit"),
    ("GET", "/v1/lives?state=dead", None, 400, "$.state"),
    ("GET", "/v1/workers/w1", None, 400, "$.worker"),
    ("PUT", "/v1/pools/p", {"priority": -1}, 400, "$.priority"),
    ("PUT", "/v1/digital-ids/d", {"pools": []}, 400, "$.pools"),
    ("PUT", "/v1/digital-ids/d", {"pools": [{"pool": "gpu", "tier": "first"}]}, 400, "$.pools[0].tier"),
    ("PUT", "/v1/digital-ids/d", {"pools": [{"pool": "gpu"}, {"pool": "gpu"}]}, 422, "twice"),
    ("PUT", "/v1/digital-ids/d", {"pools": [{"pool": "nowhere"}]}, 422, "nowhere"),
    ("DELETE", "/v1/lives/L", None, 405, "GET"),
]


@pytest.mark.usefixtures("no_trail")
async def test_bad_input_is_refused_by_name_and_changes_nothing(api: Api) -> None:
    for method, path, body, status, named in BAD_INPUT:
        before = api.context.store.link.calls
        found, problem = await api(method, path, body)
        assert (found, problem["status"]) == (status, status), (method, path, body, problem)
        assert named in problem["detail"], problem
        assert api.context.store.link.calls == before, (method, path, body)


@pytest.mark.release
async def test_a_store_that_is_gone_is_a_503_and_the_replica_is_not_ready() -> None:
    async with empty_server("valkey") as server, serving(server.address, deadline_s=0.5, fresh_s=0.5) as api:
        await api.configure()
        await api.workers(1, capacity=1)
        assert (await api("GET", "/readyz"))[0] == 200
        await server.stop()
        status, problem = await api.create("L")
        assert (status, problem["code"]) == (503, "STORE_UNAVAILABLE")
        status, problem = await until_so(
            lambda: api("GET", "/readyz"), lambda said: said[0] == 503, "a replica that is not ready"
        )
        assert problem["code"] == "NOT_READY" and "view of the fleet" in problem["detail"]
        assert (await api("GET", "/healthz"))[0] == 200


async def test_a_store_almost_out_of_memory_creates_nothing_but_lets_lives_move_and_end(api: Api) -> None:
    await api.workers(2, capacity=10)
    await api.create("L")
    api.context.fleet.memory_share = 0.95
    status, problem = await api.create("M")
    assert (status, problem["code"]) == (507, "STORE_FULL")
    status, problem = await api("PATCH", "/v1/lives/L", {"metadata": {"a": "x" * 10_000}})
    assert (status, problem["code"]) == (507, "STORE_FULL")
    assert (await api("POST", "/v1/lives/L/reassign", {"expected_epoch": 1}))[0] == 200
    assert (await api("POST", "/v1/lives/L/end"))[0] == 200


async def test_what_was_said_is_what_the_store_holds(api: Api) -> None:
    """Every create this replica answered with 201 is there, on a Worker that has it."""
    await api.workers(3, capacity=4)
    answers = await asyncio.gather(*(api.create(f"L{n}") for n in range(20)))
    made = {answer["live_id"]: answer["worker"] for status, answer in answers if status == 201}
    assert len(made) == 12
    _, listed = await api("GET", "/v1/lives?limit=100")
    assert {each["live_id"]: each["worker"] for each in listed["lives"]} == made
    assert isinstance(api.context.store, RedisStore)
