"""The viewers' HTTP API: the state of a live with its timeline, text input, and the page itself.

The page and the API come from one origin, so the page needs no CORS and no address but its own. The files of the page
are the same for everybody: the viewer's token is in the fragment of the link, which a browser sends to no server, and
the page shows it with each call. Input goes to an Infer-Controller as a viewer's; only text and interrupts, at a
limited rate (rates.py).
"""

from __future__ import annotations

from math import inf
from typing import Annotated, Literal

import msgspec
import structlog
from aiohttp import web

from dhsched.access.viewers import Grant
from dhsched.client.models.base import LivePath
from dhsched.client.models.input import Pushed, PushText
from dhsched.errors import DhschedError, Refused
from dhsched.room.live_room import LiveRoom, Said, Shown, wall_ms
from dhsched.room.pids import find_pid
from dhsched.room.rooms import Rooms
from dhsched.room.settings import RoomSettings
from dhsched.settings import listed
from dhsched.types import Id, check_id
from dhsched.web import Endpoint, Problem, Reply, Request
from dhsched.web.pages import Page
from dhsched.web.problems import MEDIA_TYPE
from dhsched.web.server import refuse

log = structlog.get_logger(__name__)


class Say(msgspec.Struct, forbid_unknown_fields=True):
    """A viewer's input for a live."""

    text: Annotated[str, msgspec.Meta(max_length=16_384)] = ""
    kind: Literal["text", "interrupt"] = "text"
    boundary: bool = True
    request_id: Id | msgspec.UnsetType = msgspec.UNSET


class Owner(msgspec.Struct, frozen=True):
    """What viewers may know of a live: neither its metadata nor its configuration."""

    live_id: str
    digital_id: str
    state: str
    worker: str
    epoch: int
    claimed: bool
    cause: str
    pending: int
    acked: int


class StateOut(msgspec.Struct, frozen=True):
    """A live as its viewers see it. `owner` is None while Dispatch does not answer; times are wall-clock.

    `may_say`, `may_interrupt`, `identity` and `expires_at_ms` are of the viewer who asks; `said` are the last items of
    all viewers of this room, without their text.
    """

    live_id: str
    now_ms: int
    owner: Owner | None
    on_air: int
    viewers: int
    may_say: bool
    may_interrupt: bool
    identity: str
    expires_at_ms: int | None
    said: list[Said]
    timeline: list[Shown]
    pid: int | None
    """The process of the Worker on air, in a room of this machine alone (`pids`)."""


class LivesOut(msgspec.Struct, frozen=True):
    """The lives that everybody may watch here and that show something: none where viewers need tokens."""

    lives: list[str]


def endpoints(rooms: Rooms) -> list[Endpoint]:
    async def lives(_asked: Request) -> LivesOut:
        return LivesOut([] if rooms.gate.needs_tokens else rooms.names_on_air())

    async def state(asked: Request) -> StateOut:
        live_id = check_id(asked.path.live_id, "live_id")
        viewer = await rooms.gate.admit(asked.request.headers, live_id, "watch")
        room = rooms.find(rooms.live(live_id))
        owner: Owner | None = None
        try:
            owner = msgspec.convert(await rooms.upstream.owner(live_id), Owner, from_attributes=True)
        except Problem as problem:
            if problem.code == "NOT_FOUND":
                raise
        return StateOut(
            live_id=live_id,
            now_ms=wall_ms(),
            owner=owner,
            on_air=room.on_air if room is not None else 0,
            viewers=len(room.viewers) if room is not None else 0,
            may_say=rooms.settings.viewers_may_type and "say" in viewer.viewer.grants,
            may_interrupt=rooms.settings.viewers_may_type and "interrupt" in viewer.viewer.grants,
            identity=viewer.viewer.identity,
            expires_at_ms=None if viewer.until == inf else round(viewer.until * 1000),
            said=[*room.said] if room is not None else [],
            timeline=[*room.shown] if room is not None else [],
            pid=pid_on_air(room) if room is not None else None,
        )

    def pid_on_air(room: LiveRoom) -> int | None:
        if not rooms.settings.pids or not room.shown or room.shown[-1].epoch != room.on_air:
            return None
        last = room.shown[-1]
        return find_pid(rooms.settings.pids, last.worker, began_ms=last.began_ms)

    async def say(asked: Request) -> Reply:
        live_id, body = check_id(asked.path.live_id, "live_id"), asked.body
        viewer = await rooms.gate.admit(asked.request.headers, live_id, *needed(body))
        if not rooms.settings.viewers_may_type:
            raise Problem("FORBIDDEN", "this room takes no text from viewers; start it with --text")
        rooms.rates.take(address=rooms.address_of(asked.request), live=live_id, kind=body.kind, viewer=viewer)
        who = viewer.viewer.identity
        item = PushText(body.text, body.kind, body.boundary, request_id=body.request_id, viewer=True, identity=who)
        try:
            pushed = await rooms.upstream.push(live_id, item)
            note(live_id, who, body.kind, msgspec.json.decode(pushed, type=Pushed).seq)
            return Reply(msgspec.Raw(pushed))
        except Refused as refused:
            return Reply(refused.problem, status=refused.status, headers={"Content-Type": MEDIA_TYPE})

    def note(live_id: str, identity: str, kind: str, seq: int | None) -> None:
        """Note who said it, for the state and the log; nothing for an item that was stored before."""
        if seq is None:
            return
        log.info("a viewer's item", live=live_id, identity=identity, kind=kind, seq=seq)
        if (room := rooms.find(rooms.live(live_id))) is not None:
            room.said.append(Said(identity, kind, seq, wall_ms()))

    return [
        Endpoint(
            name="list_shown",
            method="GET",
            path="/v1/lives",
            handler=lives,
            summary="The lives that everybody may watch here; none where viewers need tokens.",
            replies={200: LivesOut},
            tag="viewers",
        ),
        Endpoint(
            name="get_state",
            method="GET",
            path="/v1/lives/{live_id}/state",
            handler=state,
            summary="A live as its viewers see it: its owner, and the timeline of its generations.",
            path_type=LivePath,
            replies={200: StateOut},
            problems=["NOT_FOUND", "NOT_READY"],
            tag="viewers",
        ),
        Endpoint(
            name="say",
            method="POST",
            path="/v1/lives/{live_id}/text",
            handler=say,
            summary="Push what a viewer typed, or an interrupt.",
            path_type=LivePath,
            body=Say,
            replies={200: msgspec.Raw},
            problems=[
                *("FORBIDDEN", "NOT_FOUND", "ENDED", "CLOSING", "TOO_MANY_PENDING", "RATE_LIMITED", "STORE_FULL"),
                "NOT_READY",
            ],
            tag="viewers",
        ),
    ]


def needed(body: Say) -> list[Grant]:
    """Return the grants that an item needs. An interrupt may carry text to go on with: then it says something too."""
    if body.kind == "text":
        return ["say"]
    return ["interrupt", "say"] if body.text else ["interrupt"]


def page_routes(settings: RoomSettings) -> list[web.RouteDef]:
    """Return the routes of the page and its files, which are read once."""
    files = Page("dhsched.room", "page", ancestors=" ".join(("'self'", *listed(settings.frame_ancestors))))

    async def page(request: web.Request) -> web.Response:
        try:
            check_id(request.match_info["live_id"], "live_id")
        except DhschedError as error:
            return refuse(error, "", "page")
        return files.respond("live.html")

    async def index(_request: web.Request) -> web.Response:
        return files.respond("lives.html")

    return [web.get("/", index), web.get("/live/{live_id}", page), web.get("/page/{name}", files.file)]
