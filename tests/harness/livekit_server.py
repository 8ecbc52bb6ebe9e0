"""A stand-in for livekit-server, for tests: the real SDKs join its rooms, publish, subscribe, send data.

It is written from the public protocol messages (the package livekit-protocol), with aiortc as the media end. It decodes
and encodes again what it forwards, so pictures are small here. What it has:

- the signal connection at `/rtc`: join, offer and answer, trickle, add_track, mute, subscription, metadata, pings;
- the last joiner wins: the participant that had the identity is sent away with DUPLICATE_IDENTITY;
- one peer connection for what a participant publishes and one for what it receives, with the channels of both;
- data packets, and with them data streams and methods (RPC), to everybody or to the identities that a packet names;
- RoomService by Twirp: ListParticipants and RemoveParticipant;
- WHIP at `/whip`, with an access token as the bearer: a participant without a signal connection.

What it has not: resuming a lost signal connection (the client is told to join anew, which it may be told by the real
server, too), simulcast, end-to-end encryption, egress, dispatch of agents.

    python -m tests.harness.livekit_server 7880
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
from aiohttp import WSMsgType, web
from google.protobuf.message import DecodeError
from livekit.protocol import models, room, rtc

from dhsched.room.tracks import use_addresses
from tests.harness.livekit_participant import Participant, Rooms, WhipParticipant

KEY, SECRET = "devkey", "a secret of thirty-two bytes or more"
SILENT_S = 6.0  # A participant from which nothing came for this long is gone.
PING_S = 1
LINGER_S = 2.0  # A participant whose signal connection broke is listed for this long.
ROOMS = web.AppKey("rooms", Rooms)
MESSAGE_MAX = 4 * 2**20


def make_app() -> web.Application:
    app = web.Application()
    app[ROOMS] = Rooms()
    app.router.add_get("/rtc", signal)
    app.router.add_get("/rtc/validate", validate)
    app.router.add_get("/rtc/v1{rest:.*}", not_here)
    app.router.add_post("/twirp/livekit.RoomService/{method}", room_service)
    app.router.add_post("/whip", whip)
    app.router.add_delete("/whip/{room}/{sid}", whip_ended)
    app.on_shutdown.append(close_all)
    return app


async def close_all(app: web.Application) -> None:
    for participant in app[ROOMS].all():
        await participant.leave(models.SERVER_SHUTDOWN)


def claims_of(request: web.Request) -> dict[str, Any]:
    """Return the claims of the access token; raise 401 if it is not signed with our secret or is over."""
    token = request.query.get("access_token") or request.headers.get("Authorization", "").removeprefix("Bearer ")
    try:
        return dict(jwt.decode(token, SECRET, algorithms=["HS256"], options={"verify_aud": False}))
    except jwt.PyJWTError as error:
        raise web.HTTPUnauthorized(text=f"invalid token: {error}") from None


def join_claims(request: web.Request) -> dict[str, Any]:
    claims = claims_of(request)
    grants = claims.get("video") or {}
    if not grants.get("roomJoin") or not grants.get("room") or not claims.get("sub"):
        raise web.HTTPUnauthorized(text="permissions denied: the token needs roomJoin, room and an identity")
    return claims


async def validate(request: web.Request) -> web.Response:
    join_claims(request)
    return web.Response(text="success", headers={"Access-Control-Allow-Origin": "*"})


async def not_here(_: web.Request) -> web.Response:
    """Tell a client that this server is older than one peer connection for both directions: it takes `/rtc` then."""
    return web.Response(status=404, headers={"Access-Control-Allow-Origin": "*"})


# -- the signal connection


async def signal(request: web.Request) -> web.WebSocketResponse:
    claims = join_claims(request)
    socket = web.WebSocketResponse(max_msg_size=MESSAGE_MAX)
    await socket.prepare(request)
    if request.query.get("reconnect") in ("1", "true"):
        # The state of that connection is not kept: have the client join anew, by itself.
        leave = rtc.LeaveRequest(reason=models.STATE_MISMATCH, action=rtc.LeaveRequest.RECONNECT, can_reconnect=True)
        await socket.send_bytes(rtc.SignalResponse(leave=leave).SerializeToString())
        await socket.close()
        return socket
    rooms = request.app[ROOMS]
    auto = request.query.get("auto_subscribe", "1") not in ("0", "false")
    participant = Participant(rooms.room(claims["video"]["room"]), claims, socket, auto_subscribe=auto)
    await participant.join(ping_s=PING_S, silent_s=int(SILENT_S))
    try:
        await read(socket, participant)
    finally:
        # Also when the request is cancelled, because the server stops.
        await asyncio.shield(asyncio.ensure_future(ended(participant)))
    return socket


async def read(socket: web.WebSocketResponse, participant: Participant) -> None:
    while True:
        try:
            message = await socket.receive(timeout=SILENT_S)
        except TimeoutError:
            return
        if message.type is not WSMsgType.BINARY:
            return
        try:
            asked = rtc.SignalRequest.FromString(message.data)
        except DecodeError:
            return
        if asked.WhichOneof("message") == "leave":
            participant.left = True
            return
        await participant.hear(asked)


async def ended(participant: Participant) -> None:
    """A client that has left is gone; one that broke off is listed for a while, as the real server does."""
    if not participant.left and not participant.gone:
        await participant.hang_up()
        await asyncio.sleep(LINGER_S)
    await participant.leave(models.CLIENT_INITIATED if participant.left else models.SIGNAL_CLOSE)


# -- RoomService


async def room_service(request: web.Request) -> web.Response:
    grants = claims_of(request).get("video") or {}
    if not grants.get("roomAdmin"):
        return refusal(401, "unauthenticated", "permissions denied")
    body = await request.read()
    rooms = request.app[ROOMS]
    answer: room.ListParticipantsResponse | room.RemoveParticipantResponse
    if request.match_info["method"] == "ListParticipants":
        found = rooms.room(room.ListParticipantsRequest.FromString(body).room)
        answer = room.ListParticipantsResponse(participants=[each.info() for each in found.participants.values()])
    elif request.match_info["method"] == "RemoveParticipant":
        named = room.RoomParticipantIdentity.FromString(body)
        participant = rooms.room(named.room).participants.get(named.identity)
        if participant is None:
            return refusal(404, "not_found", "participant does not exist")
        await participant.leave(models.PARTICIPANT_REMOVED)
        answer = room.RemoveParticipantResponse()
    else:
        return refusal(404, "bad_route", "this stand-in has ListParticipants and RemoveParticipant")
    return web.Response(body=answer.SerializeToString(), content_type="application/protobuf")


def refusal(status: int, code: str, text: str) -> web.Response:
    return web.json_response({"code": code, "msg": text}, status=status)


# -- WHIP


async def whip(request: web.Request) -> web.Response:
    claims = join_claims(request)
    participant = WhipParticipant(request.app[ROOMS].room(claims["video"]["room"]), claims)
    answer = await participant.publish(await request.text())
    where = f"/whip/{participant.room.name}/{participant.sid}"
    return web.Response(status=201, text=answer, content_type="application/sdp", headers={"Location": where})


async def whip_ended(request: web.Request) -> web.Response:
    claims_of(request)
    for participant in [*request.app[ROOMS].room(request.match_info["room"]).participants.values()]:
        if participant.sid == request.match_info["sid"]:
            await participant.leave(models.CLIENT_INITIATED)
            return web.Response()
    return web.Response(status=404)


@asynccontextmanager
async def listening(port: int = 0) -> AsyncIterator[int]:
    """Serve on loopback; yield the port."""
    use_addresses(["127.0.0.1"])
    runner = web.AppRunner(make_app(), shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def main() -> None:
    async with listening(int(sys.argv[1]) if len(sys.argv) > 1 else 0) as port:
        print(f"livekit listens on ws://127.0.0.1:{port}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
