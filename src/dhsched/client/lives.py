"""The client: create and end lives, push their input, follow their events."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import aiohttp
import msgspec

from dhsched.access.viewers import TTL_S, Grant
from dhsched.addresses import DISPATCH, addresses
from dhsched.client.calls import bearer
from dhsched.client.credentials import TLS_CA, given_or_found
from dhsched.client.following import follow
from dhsched.client.http import Replicas, open_session
from dhsched.client.models.base import UNSET, Optional
from dhsched.client.models.input import Pushed, PushText
from dhsched.client.models.lives import (
    ENDS_MAX,
    ChangeLive,
    CreateLive,
    End,
    Ended,
    EndedLives,
    EndLives,
    History,
    Live,
    LiveSummary,
    Placed,
    Reassign,
)
from dhsched.client.models.summary import AllWorkers, Changes, ReplicaList, ReplicaOut, Summary
from dhsched.client.models.viewers import MintViewerToken, ViewerToken
from dhsched.client.models.workers import Drain, DrainWorker, WorkerSummary
from dhsched.client.producers import Producers
from dhsched.client.speaking import Turn
from dhsched.client.stream import Stream
from dhsched.errors import Refused, Unreachable

DRAWS_MAX = 3  # Further ids that are drawn for a live in vain; with the last one the client waits, or is refused.


class Event(NamedTuple):
    """An event of a live: committed, claimed, said, dropped, interrupted, released, acked, emitted, stalled, ended."""

    name: str
    data: dict[str, Any]


class Client:
    """A client of one deployment. Use it as a context, from one event loop.

    `dispatch` are addresses, one or many: if one does not answer, the next is asked. Dispatch passes input on to the
    Infer-Controllers; with `infer`, their addresses, the client sends it to them directly. `key` is an API key,
    whose tokens go along with every call and are renewed in time; without `key` the client searches DHSCHED_KEY,
    DHSCHED_KEY_FILE, and the development keys of this user. `token` is a token instead of a key. `tenant`, for an
    admin's key, says whose lives are meant. `deadline_s` is for one call, all tries included.
    """

    def __init__(
        self,
        dispatch: str | Sequence[str] = DISPATCH,
        infer: str | Sequence[str] | None = None,
        *,
        key: str | None = None,
        token: str | None = None,
        tenant: str | None = None,
        deadline_s: float = 30.0,
    ) -> None:
        given = addresses("dispatch", dispatch)
        self._urls = given, given if infer is None else addresses("infer", infer)
        self._credentials = given_or_found("" if token else key)
        self._headers = bearer(token) if token else {}
        if tenant:
            self._headers["X-Tenant"] = tenant
        self._deadline_s = deadline_s
        self._producers = Producers()
        self._http: aiohttp.ClientSession | None = None
        self._dispatch: Replicas
        self._infer: Replicas

    async def __aenter__(self) -> Self:
        dispatch, infer = self._urls
        http = open_session(dispatch + infer, os.environ.get(TLS_CA, ""), headers=self._headers)
        self._dispatch = Replicas("dispatch", dispatch, http, self._credentials, deadline_s=self._deadline_s)
        self._infer = Replicas("infer", infer, http, self._credentials, deadline_s=self._deadline_s)
        self._http = http
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._http is not None
        await self._http.close()

    # -- lives

    async def create(
        self,
        digital_id: str,
        *,
        live_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        room: str | None = None,
        priority: int | None = None,
        immovable: bool = False,
        idle_s: float | Optional | None = UNSET,
        max_s: float | Optional | None = UNSET,
        labels: Sequence[str] = (),
        wait_s: float = 0,
    ) -> Placed:
        """Place a new live. Without `live_id` the client makes one, so that a repeated try makes no second live. Where
        the cell of that id has no free slot and another cell has, the client draws another id, up to DRAWS_MAX times,
        before it waits for a slot.

        The live ends without input for `idle_s`, and at the age of `max_s`; None is no limit, and without either the
        Pool decides.
        """
        body = CreateLive(
            digital_id,
            live_id=live_id or new_live_id(),
            room=UNSET if room is None else room,
            metadata=dict(metadata or {}),
            config=dict(config or {}),
            immovable=immovable,
            idle_s=idle_s,
            max_s=max_s,
            labels=list(labels),
        )
        if priority is not None:
            body.priority = priority
        draws_left = DRAWS_MAX if live_id is None else 0
        while True:
            query = {"wait_s": wait_s or None, "redraw": "1" if draws_left and wait_s else None}
            is_final = is_elsewhere if draws_left else None
            try:
                return await self._dispatch.read(
                    *(Placed, "POST", "lives"), body=body, query=query, wait_s=wait_s, is_final=is_final
                )
            except Refused as refused:
                if not (draws_left and is_elsewhere(refused)) or (refused.unknown and not wait_s):
                    raise
                if refused.unknown:  # There may be a live with this id: the caller waits for that one.
                    draws_left = 0
                else:
                    draws_left -= 1
                    body.live_id = new_live_id()

    async def get(self, live_id: str) -> Live:
        return await self._dispatch.read(Live, "GET", "lives", live_id)

    async def lives(self, **filters: Any) -> AsyncIterator[LiveSummary]:
        """Yield lives by name; filters: state, worker, pool, digital_id, label, age_s, idle_s, stalled."""
        query = {name: str(value).lower() if isinstance(value, bool) else value for name, value in filters.items()}
        async for row in self._pages("lives", query):
            yield msgspec.convert(row, LiveSummary)

    async def change(
        self, live_id: str, *, metadata: Mapping[str, Any] | None = None, labels: Sequence[str] | None = None
    ) -> Live:
        """Replace a live's metadata, its labels, or both; what is None stays."""
        body = ChangeLive(
            metadata=UNSET if metadata is None else dict(metadata), labels=UNSET if labels is None else list(labels)
        )
        return await self._dispatch.read(Live, "PATCH", "lives", live_id, body=body)

    async def end_many(self, *, limit: int = ENDS_MAX, after: str | None = None, **filters: Any) -> EndedLives:
        """End up to `limit` lives that match the filters, as in `lives`; `after` is the `next` of the call before.

        A call whose answer is lost is not repeated, because it would end others: it raises Unreachable, `unknown`.
        """
        given = {**filters, "limit": limit, **({} if after is None else {"after": after})}
        body = msgspec.convert(given, EndLives)
        return await self._dispatch.read(EndedLives, "POST", "end-lives", body=body, twice=False)

    async def reassign(self, live_id: str, *, to: str | None = None, avoid: Sequence[str] = ()) -> Placed:
        """Reassign a live to another Worker: to `to` and no other, or without it wherever there is a free slot."""
        expected = (await self.get(live_id)).epoch
        body = Reassign(expected, target=UNSET if to is None else to, avoid=list(avoid))
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        return await self._dispatch.read(Placed, "POST", "lives", live_id, "reassign", body=body, headers=headers)

    async def end(self, live_id: str, *, after_pending: bool = False) -> Ended:
        return await self._dispatch.read(Ended, "POST", "lives", live_id, "end", body=End(after_pending))

    async def viewer_token(
        self,
        live_id: str,
        grants: Sequence[Grant] = ("watch",),
        *,
        identity: str = "",
        ttl_s: int = TTL_S,
        say_rate_per_s: float | None = None,
        interrupt_rate_per_s: float | None = None,
    ) -> ViewerToken:
        """Mint a token with which one person watches this live in a room and, with the grants `say` and `interrupt`,
        types. `identity` is shown as who said something. The rates are items a second; None is the room's limit."""
        body = MintViewerToken(
            list(grants),
            ttl_s=ttl_s,
            identity=identity,
            say_rate_per_s=UNSET if say_rate_per_s is None else say_rate_per_s,
            interrupt_rate_per_s=UNSET if interrupt_rate_per_s is None else interrupt_rate_per_s,
        )
        return await self._dispatch.read(ViewerToken, "POST", "lives", live_id, "viewer-tokens", body=body)

    async def history(self, live_id: str) -> History:
        return await self._dispatch.read(History, "GET", "lives", live_id, "history")

    async def workers(self, **filters: str) -> AsyncIterator[WorkerSummary]:
        """Yield Workers by id; filters: pool, status."""
        async for row in self._pages("workers", filters):
            yield msgspec.convert(row, WorkerSummary)

    async def summary(self) -> Summary:
        """Return the whole deployment in one document: lives, slots, brake, store, safety counters, Pools."""
        return await self._dispatch.read(Summary, "GET", "summary")

    async def replicas(self) -> list[ReplicaOut]:
        """Return the Dispatch replicas and Infer-Controllers, with version and readiness."""
        return (await self._dispatch.read(ReplicaList, "GET", "replicas")).replicas

    async def changes(self) -> AsyncIterator[AllWorkers | Changes]:
        """Yield the Workers, a page at a time, then what changes. After a page that is `first`, forget what you knew:
        a connection made anew may begin again."""
        assert self._http is not None, "use the client as a context: async with Client(...) as client"
        async for event in follow(self._dispatch, "changes"):
            kind: type[AllWorkers | Changes] = AllWorkers if event.name == "all" else Changes
            yield msgspec.convert(event.data, kind)

    async def drain(self, worker: str, *, deadline_s: float | None = None, to_cell: str = "") -> Drain:
        """Move every live off a Worker, at boundaries; after `deadline_s` lives that are left move at once. The empty
        Worker then goes to cell `to_cell`, if that is given."""
        body = DrainWorker(UNSET if deadline_s is None else deadline_s, to_cell=to_cell or UNSET)
        return await self._dispatch.read(Drain, "POST", "workers", worker, "drain", body=body)

    async def drained(self, worker: str) -> Drain:
        """Return the progress of a drain."""
        return await self._dispatch.read(Drain, "GET", "workers", worker, "drain")

    async def undrain(self, worker: str) -> None:
        """Cancel a drain: the Worker takes lives again."""
        await self._dispatch.call("DELETE", "workers", worker, "drain")

    async def put_pool(self, pool: str, config: Mapping[str, Any]) -> None:
        """Create or replace a Pool as a whole."""
        await self._dispatch.call("PUT", "pools", pool, body=dict(config))

    async def put_digital_id(self, digital_id: str, config: Mapping[str, Any]) -> None:
        """Create or replace a DigitalID as a whole."""
        await self._dispatch.call("PUT", "digital-ids", digital_id, body=dict(config))

    async def _pages(self, what: str, filters: Mapping[str, Any]) -> AsyncIterator[Any]:
        """Yield the rows of all pages. Raise Unreachable at the end if a cell could not be asked: what it has is
        missing, and not gone."""
        after, left_out = None, set[str]()
        while True:
            query = {**filters, "after": after, "limit": 1_000}
            page = await self._dispatch.read(dict[str, Any], "GET", what, query=query)
            for row in page[what]:
                yield row
            left_out |= {*page.get("cells_left_out", ())}
            if (after := page["next"]) is None:
                break
        if left_out:
            names = ", ".join(sorted(left_out))
            raise Unreachable(f"cell {names} cannot be asked now: the {what} there are not in this list")

    # -- input

    async def push(self, live_id: str, text: str, *, boundary: bool = False, request_id: str | None = None) -> Pushed:
        """Store one item of text. For many items, a `stream` is faster and keeps their order."""
        return await self._push(live_id, PushText(text, boundary=boundary), request_id)

    async def interrupt(self, live_id: str, text: str = "", *, request_id: str | None = None) -> Pushed:
        """Drop the pending items; the runtime stops and continues with `text`, if given."""
        return await self._push(live_id, PushText(text, "interrupt"), request_id)

    async def configure(self, live_id: str, config: Mapping[str, Any], *, request_id: str | None = None) -> Pushed:
        """Replace the runtime's whole configuration, in order with the text."""
        return await self._push(live_id, PushText(kind="config", config=dict(config)), request_id)

    async def _push(self, live_id: str, body: PushText, request_id: str | None) -> Pushed:
        body.request_id = request_id or secrets.token_hex(16)
        return await self._infer.read(Pushed, "POST", "lives", live_id, "text", body=body)

    def stream(self, live_id: str, *, in_flight_max: int = 256) -> Stream:
        """Return a connection for many items: in order, each exactly once, also over lost connections."""
        assert self._http is not None, "use the client as a context: async with Client(...) as client"
        return Stream(
            *(self._infer, live_id, self._producers),
            in_flight_max=in_flight_max,
            deadline_s=self._deadline_s,
        )

    def speak(self, live_id: str, tokens: AsyncIterable[str]) -> Turn:
        """Have a live speak the tokens of a language model, as they come. Await the turn for what was heard; an
        interrupt, its own (`turn.interrupt()`) or another's, ends it, and no more tokens are read."""
        return Turn(self, live_id, tokens)

    # -- events

    async def events(self, live_id: str) -> AsyncIterator[Event]:
        """Yield a live's events until it ends. A connection made anew begins with the live's current state."""
        assert self._http is not None, "use the client as a context: async with Client(...) as client"
        async for event in follow(self._infer, "lives", live_id, "events"):
            yield Event(event.name, event.data)
            if event.name == "ended":
                return


def is_elsewhere(refused: Refused) -> bool:
    """Return whether the refusal says that another cell has free slots, for a live with another id."""
    return refused.problem.get("elsewhere") is True


def new_live_id() -> str:
    return f"lv-{secrets.token_hex(8)}"
