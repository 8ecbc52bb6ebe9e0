"""A create without an id, where the cell of the drawn id is full: when another id is drawn, and when never."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from dhsched.client import Client
from dhsched.client.lives import DRAWS_MAX
from dhsched.errors import Refused

FULL: dict[str, Any] = {"code": "FULL", "detail": "all Workers are full"}
STARTING: dict[str, Any] = {"code": "STARTING", "detail": "Workers are starting as many lives as they may"}
FULL_HERE = FULL | {"elsewhere": True}
UNKNOWN = {"code": "STORE_UNAVAILABLE", "detail": "no answer"}
LOST = "lost"


class Dispatch:
    """A replica that answers creates as the test says, the last answer again and again; None is a live."""

    def __init__(self, *answers: Any) -> None:
        self.answers = [*answers]
        self.ids: list[str] = []
        self.waits: list[tuple[str | None, str | None]] = []

    async def create(self, request: web.Request) -> web.Response:
        self.ids.append((await request.json())["live_id"])
        self.waits.append((request.query.get("wait_s"), request.query.get("redraw")))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer == LOST:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if answer is None:
            return web.json_response({"live_id": self.ids[-1], "worker": "w#1", "epoch": 1}, status=201)
        return web.json_response(answer, status=503, headers={"Retry-After": "0"})


@asynccontextmanager
async def client_of(dispatch: Dispatch) -> AsyncIterator[Client]:
    app = web.Application()
    app.add_routes([web.post("/v1/lives", dispatch.create)])
    async with TestServer(app) as server, Client(str(server.make_url("")), token="t") as client:
        yield client


async def test_another_id_is_drawn_while_the_cell_is_full_and_another_is_not() -> None:
    dispatch = Dispatch(FULL_HERE, STARTING | {"elsewhere": True}, None)
    async with client_of(dispatch) as client:
        made = await client.create("anna", wait_s=2)
    assert made.live_id == dispatch.ids[-1]
    assert len(set(dispatch.ids)) == 3
    assert dispatch.waits == [("2", "1")] * 3, "nobody waits where another cell has free slots"


async def test_who_wants_to_wait_waits_with_the_last_id_that_is_drawn() -> None:
    dispatch = Dispatch(*[FULL_HERE] * DRAWS_MAX, None)
    async with client_of(dispatch) as client:
        await client.create("anna", wait_s=2)
    assert len(set(dispatch.ids)) == DRAWS_MAX + 1
    assert dispatch.waits == [("2", "1")] * DRAWS_MAX + [("2", None)]


async def test_a_create_that_need_not_draw_is_one_call() -> None:
    for wait_s in (0, 2):
        dispatch = Dispatch(None)
        async with client_of(dispatch) as client:
            await client.create("anna", wait_s=wait_s)
        assert dispatch.waits == [("2", "1") if wait_s else (None, None)]
    dispatch = Dispatch(None)
    async with client_of(dispatch) as client:
        await client.create("anna", live_id="mine", wait_s=2)
    assert dispatch.waits == [("2", None)]


@pytest.mark.parametrize("first", [LOST, UNKNOWN])
async def test_who_waits_stays_with_an_id_that_may_be_that_of_a_live(first: Any) -> None:
    dispatch = Dispatch(first, FULL_HERE, None)
    async with client_of(dispatch) as client:
        await client.create("anna", wait_s=2)
    assert len(set(dispatch.ids)) == 1
    assert dispatch.waits == [("2", "1"), ("2", "1"), ("2", None)]


@pytest.mark.parametrize(
    ("given", "refusal", "tries"),
    [
        ({}, FULL_HERE, DRAWS_MAX + 1),
        ({}, FULL, 1),  # No cell has a free slot, or there is only one.
        ({"live_id": "mine"}, FULL_HERE, 1),  # The caller knows its live by this id.
    ],
)
async def test_a_refusal_is_raised_after_so_many_draws(given: dict[str, Any], refusal: Any, tries: int) -> None:
    dispatch = Dispatch(refusal)
    async with client_of(dispatch) as client:
        with pytest.raises(Refused) as refused:
            await client.create("anna", **given)
    assert refused.value.code == "FULL" and not refused.value.unknown
    assert len(dispatch.ids) == len(set(dispatch.ids)) == tries


@pytest.mark.parametrize("first", [LOST, UNKNOWN])
async def test_no_id_is_drawn_after_an_answer_that_may_have_made_the_live(first: Any) -> None:
    dispatch = Dispatch(first, FULL_HERE)
    async with client_of(dispatch) as client:
        with pytest.raises(Refused) as refused:
            await client.create("anna")
    assert refused.value.unknown
    assert len(dispatch.ids) == 2 and len(set(dispatch.ids)) == 1


async def test_an_id_is_drawn_after_a_try_that_surely_did_nothing() -> None:
    dispatch = Dispatch({"code": "BUSY", "detail": "at its limit"}, FULL_HERE, None)
    async with client_of(dispatch) as client:
        await client.create("anna")
    assert dispatch.ids[0] == dispatch.ids[1] != dispatch.ids[2]
