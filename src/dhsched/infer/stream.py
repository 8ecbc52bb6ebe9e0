"""PushText over a WebSocket: `/v1/lives/{live_id}/stream`, and `/v1/stream` for many lives on one socket.

A frame is a JSON object, or an array of them; replies come as arrays, one per tick of the loop. An object is one of

    {"n": 7, "text": "Hello.", "boundary": true}      an item, number 7 of this producer
    {"text": "Hello."}                                an item without a number
    {"token": "Hel"}                                  a piece of text, to be joined with what follows

each with `kind` and `config` as in a POST, and with `live` on `/v1/stream`. Many may be in flight; the replies of one
live have the order of its pushes. Numbered items are stored exactly once: `?producer=NAME` and n identify an item, so
after a lost connection a client sends again from the last reply, and nothing is doubled, left out or reordered. Tokens
are joined up to a sentence's end, for at most `join_ms`, and while the item before is being stored; `tokens` in the
reply counts the tokens of this connection that are stored. Tokens have no numbers, so a client does not know which of
those in flight were stored when its connection broke.

`PushStream` (push_stream.py) decides all of this; this file gives it frames, appends, timers and a clock.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from time import perf_counter

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from dhsched.access.callers import Caller
from dhsched.client.models.input import Answer, Push
from dhsched.errors import DhschedError
from dhsched.infer.append_rules import request_ids, store_full
from dhsched.infer.context import Inputs
from dhsched.infer.push_stream import Actions, ArmTimer, Item, Line, PushStream
from dhsched.input_routes import PUSH_STREAM, PUSH_STREAMS
from dhsched.links.json_bounds import excess
from dhsched.links.messages import PUSH_FRAME_BYTES_MAX, PUSHES_MAX
from dhsched.links.outbox import Outbox, abort_if_failed, hang_up
from dhsched.ownership import outcomes as o
from dhsched.types import check_id, live_key
from dhsched.web import Problem, caller_of, check_upgrade, upgrade
from dhsched.web.problems import problem_of
from dhsched.web.sockets import ServedSocket

GOODBYE_S = 1.0  # A closing stream that does not take its last answers within this time is closed without them.
STREAM_HEARTBEAT_S = 20.0  # A client that answers no ping is disconnected; long, because some clients read seldom.

_frames = msgspec.json.Decoder(list[Push] | Push)


def read_pushes(frame: str | bytes) -> list[Push]:
    """Return the pushes in a frame. Raise TOO_LARGE for too many of them, and for what json_bounds.py refuses."""
    try:
        raw = frame.encode() if isinstance(frame, str) else frame
        if found := excess(raw):
            raise too_much(found)
        pushes = _frames.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("BAD_REQUEST", f"the frame cannot be read: {error}") from None
    if not isinstance(pushes, list):
        return [pushes]
    if len(pushes) > PUSHES_MAX:
        raise too_much(f"{len(pushes)} items")
    return pushes


def too_much(found: str) -> Problem:
    return Problem(
        "TOO_LARGE", f"the frame has {found}; send at most {PUSHES_MAX} items in one frame", items_max=PUSHES_MAX
    )


def routes(inputs: Inputs) -> list[web.RouteDef]:
    async def serve(request: web.Request) -> web.StreamResponse:
        caller = caller_of(request)
        with ExitStack() as counted:
            try:
                live_id = request.match_info.get("live_id", "")
                if live_id:
                    live_key(caller.tenant, live_id)
                producer = request.query.get("producer", "")
                if producer:
                    check_id(producer, "producer")
                counted.enter_context(inputs.connections.open_stream(caller.tenant))
                check_upgrade(request)
            except DhschedError as error:
                return problem_of(error).response()
            return await StreamPeer(inputs, caller, live_id, producer).serve(request)

    return [
        PUSH_STREAM.raw_route(serve),
        PUSH_STREAMS.raw_route(serve),
    ]


class StreamPeer:
    """One socket: passes events to its PushStream, and does the actions that the PushStream returns."""

    def __init__(self, inputs: Inputs, caller: Caller, live_id: str, producer: str) -> None:
        settings = inputs.settings
        self._inputs = inputs
        self._caller = caller
        self._stream = PushStream(
            tenant=caller.tenant,
            live_id=live_id,
            producer=producer,
            text_bytes_max=settings.text_bytes_max,
            in_flight_max=settings.stream_in_flight_max,
            join_s=settings.join_ms / 1000,
            deadline_s=settings.deadline_s,
            new_request=request_ids(),
        )
        self._loop = asyncio.get_running_loop()
        self._may_go_on = asyncio.Event()
        self._waits = False  # For `_may_go_on`.
        self._append_soon = inputs.append_soon
        self._count = inputs.pushed
        self._ends = False
        self._since_others = 0  # Pushes that were handled since other connections were served.
        self._outbox: Outbox
        self._sending: asyncio.Task[None]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        socket = await upgrade(request, heartbeat_s=STREAM_HEARTBEAT_S, frame_bytes_max=PUSH_FRAME_BYTES_MAX)
        if socket is None:
            return web.Response()

        async def send(frame: bytes) -> None:
            await socket.send_str(frame.decode())

        self._outbox = Outbox(send, self._drained, msgspec.json.encode)
        self._sending = asyncio.create_task(self._outbox.run())
        # A connection that failed takes no answers: end the wait for it to drain.
        self._sending.add_done_callback(lambda _: self._drained())
        abort_if_failed(self._sending, request.transport)
        try:
            with (
                self._inputs.connections.open_socket(socket, request.transport),
                self._inputs.service.open_while(self._caller, request),
            ):
                async for message in socket:
                    if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                        break
                    await self._hear(message.data)
                    if self._ends:
                        await self._end(socket)
                        break
        finally:
            self._stream.closed()
            await hang_up(socket, self._sending, request.transport)
        return socket

    async def _hear(self, frame: str | bytes) -> None:
        """Handle all pushes of a frame. After each PUSHES_MAX of them, in whatever frames, serve other connections."""
        try:
            await self._inputs.service.load.turn(self._caller.tenant)
            pushes = read_pushes(frame)
        except Problem as problem:
            self._act(self._stream.frame_refused(problem))
            await self._wait_for_rate(1)
            return
        full = store_full(self._inputs.memory_share, self._inputs.settings.memory_max)
        quotas, tenant = self._inputs.service.quotas, self._caller.tenant
        over = problem_of(quotas.too_much_pending(tenant)) if tenant in quotas.over_pending else None
        self._act(self._stream.push(pushes, perf_counter(), full, over))
        await self._wait_for_rate(len(pushes))
        if self._outbox.full or self._stream.held_back:
            await self._wait_until_read()
        self._since_others += len(pushes)
        if self._since_others >= PUSHES_MAX:
            self._since_others = 0
            await asyncio.sleep(0)

    async def _wait_until_read(self) -> None:
        """Wait while the client does not read its answers, or has too many items that are not stored yet."""
        self._waits = True
        while True:
            if self._outbox.full and not self._sending.done():
                self._stream.full()
            if not self._stream.held_back:
                break
            self._may_go_on.clear()
            await self._may_go_on.wait()
        self._waits = False

    def _drained(self) -> None:
        if not self._outbox.full or self._sending.done():
            self._stream.drained()
            self._may_go_on.set()

    async def _wait_for_rate(self, items: int) -> None:
        """Wait while the client's key or tenant is over its rate. Items that were read are accepted: none is lost."""
        wait_s = self._inputs.service.slow(self._caller, items)
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    async def _end(self, socket: ServedSocket) -> None:
        """Send the answers that are left, then close the socket with the code of a frame that is too long."""
        self._outbox.finish()
        await asyncio.wait((self._sending,), timeout=GOODBYE_S)
        await socket.close(code=WSCloseCode.MESSAGE_TOO_BIG)

    # -- actions

    def _act(self, actions: Actions) -> None:
        """Do the actions of an event."""
        for action in actions:
            # The hot path: one callback per item, no task and no future.
            if type(action) is Answer:
                self._outbox.put(action)
            elif isinstance(action, Item):
                self._append_soon(action.row, partial(self._appended, action))
            elif isinstance(action, ArmTimer):
                self._loop.call_later(max(0.0, action.at - perf_counter()), self._timer_fired, action.line)
            else:
                self._ends = True

    def _appended(self, item: Item, outcome: o.AppendOutcome | DhschedError) -> None:
        now = perf_counter()
        if isinstance(outcome, o.Appended) or not isinstance(outcome, DhschedError):
            self._count(outcome, now - item.began, self._caller.tenant, item.line.live)
        self._act(self._stream.append_answered(item, outcome, now))
        if self._waits:
            self._may_go_on.set()

    def _timer_fired(self, line: Line) -> None:
        self._act(self._stream.timer_fired(line, perf_counter()))
