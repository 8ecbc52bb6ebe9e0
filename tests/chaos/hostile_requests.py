"""HTTP requests of the hostile Worker and the hostile viewer, and tokens that they have forged.

The requests are the endpoints that a boot token, a Worker's key or nobody's key may call (access/rules.py), and all
that a room serves to viewers; their fields are those of the endpoints' own documents. The claims are those of tokens
that the product has issued: each is changed, and the signature is another key's, none, or of the token before. Claims
that are times are signed with the true key: an old token was valid once.

The viewer has a token with every grant for the live VIEWED, and knows the secret session key of another viewer.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, urlsplit

import jwt
import msgspec
from aiortc import RTCConfiguration, RTCPeerConnection
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import inspect

from dhsched.access.rules import rule_of
from dhsched.access.viewer_tokens import private_key
from dhsched.dispatch.api.blocked import BlockedWorkers
from dhsched.dispatch.api.machines import Machines
from dhsched.links import messages as m
from dhsched.room import viewing, whep
from dhsched.room.publish import PATH as PUBLISH
from dhsched.room.settings import RoomSettings
from dhsched.tokens import Boot, Publishing
from dhsched.types import Generation
from dhsched.web import MINT, Endpoint
from dhsched.web.sessions import SESSIONS
from tests.chaos.hostile import ANSWER_S, CONNECTIONS, REPEATING_S, Hostile, Prey, known_values
from tests.chaos.hostile_links import Links
from tests.chaos.hostile_values import EVIL, NO_FIELD, VIEWED, Known, Row, bare, fields_of, shares, value_of_type, wrong
from tests.chaos.picture import Audience
from tests.chaos.runtime import SHOWN
from tests.harness.fuzz_values import value as usual

OFFER = "offer"
BURST = 25  # Requests that are written at once, on one connection.
UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: RVZJTCBFVklMIEVWSUwhIQ==\r\n\r\n"
)
TIMES = ("iat", "nbf", "exp")
HEADER = ("alg", "kid", "typ")


@dataclass(frozen=True)
class Call:
    """One endpoint. `fields` has each field's place (path, body or the offer) and its type."""

    name: str
    role: str
    method: str
    path: str
    fields: Mapping[str, tuple[str, inspect.Type]]
    body: type[Any] | None
    shown: str


def calls() -> dict[str, Call]:
    """Every request that a Worker's key, a boot token, a viewer's token or nothing at all is good for."""
    nothing = cast(Any, None)
    dispatch = [*BlockedWorkers(nothing).endpoints(), MINT, *SESSIONS, *Machines(nothing).endpoints()]
    found = [of_endpoint("dispatch", each) for each in dispatch if is_open_to_workers(each.name)]
    found += [of_endpoint("room", each) for each in viewing.endpoints(nothing)]
    for route in (*whep.routes(nothing), *viewing.page_routes(RoomSettings())):
        text = inspect.StrType()
        fields = {name: ("path", cast(inspect.Type, text)) for name in re.findall(r"{(\w+)}", route.path)}
        if (route.method, route.path) == ("POST", whep.PATH):
            fields[OFFER] = ("offer", inspect.StrType(max_length=whep.SDP_BYTES_MAX))
        name = f"room {route.method.lower()} {re.sub(r'{.*?}', '', route.path).rstrip('/').rpartition('/')[2]}"
        found.append(Call(name, "room", route.method, route.path, fields, None, "viewer"))
    return {each.name: each for each in found}


def is_open_to_workers(name: str) -> bool:
    rule = rule_of(name)
    return rule.public or not rule.shown.isdisjoint({"boot", "key"})


def of_endpoint(role: str, endpoint: Endpoint) -> Call:
    fields = {name: ("path", type_) for name, type_ in fields_of(endpoint.path_type).items() if name != NO_FIELD}
    if endpoint.body is not None:
        fields |= {name: ("body", type_) for name, type_ in fields_of(endpoint.body).items() if name != NO_FIELD}
    rule = rule_of(endpoint.name)
    shown = "viewer" if role == "room" else "boot" if "boot" in rule.shown else "key"
    fields = fields or {NO_FIELD: ("body", inspect.AnyType())}
    return Call(f"{role} {endpoint.name}", role, endpoint.method, endpoint.path, fields, endpoint.body, shown)


TOKENS = ("boot token", "publish token", "viewer token")


class Requests:
    """The requests of both, and their forged tokens."""

    def __init__(self, hostile: Hostile, audience: Audience) -> None:
        self._hostile, self._audience = hostile, audience
        self._calls = calls()
        self._links = Links(hostile)
        self._offer = ""
        self._viewer = audience.token(VIEWED, EVIL)
        samples = {"boot token": hostile.tokens.issue(Boot("a#1", "a", "a", "a", 1, "a")), "viewer token": self._viewer}
        samples["publish token"] = hostile.tokens.issue_publish(Publishing(VIEWED, Generation("a#1", 1)))
        self.rows = [Row(call.name, field) for call in self._calls.values() for field in call.fields]
        self.rows += [Row(name, claim) for name in TOKENS for claim in (*claims_of(samples[name]), *HEADER)]

    # -- one cell

    async def send(self, row: Row, kind: str) -> int:
        prey = self._hostile.prey(m.Pull)
        self._offer = self._offer or await offer()
        await self._hostile.pace()
        if row.message in TOKENS:
            came = await self._forged(row, kind, prey)
        else:
            call = self._calls[row.message]
            known = self._known(prey)
            given = {name: self._own(name, type_, known) for name, (_, type_) in call.fields.items()}
            type_ = call.fields[row.field][1]
            given[row.field] = wrong(kind, type_, known.get(row.field, Known(given[row.field])))
            status, answer = await self._ask(call, given, self._shown(call, prey))
            came = "answered" if status < 300 else "refused"
            if status < 300:
                self._check(call, given, answer, prey)
        self._hostile.coverage.count(row, kind, came)
        return 1

    def _own(self, name: str, type_: inspect.Type, known: Mapping[str, Known]) -> Any:
        return known[name].own if name in known else usual(bare(type_), name, large=False)

    def _known(self, prey: Prey) -> dict[str, Known]:
        links = known_values(prey, self._hostile.tokens)
        viewed, shown = VIEWED.partition("/")[2], SHOWN.partition("/")[2]
        ended = [live for live, record in prey.state.lives.items() if record.state == "ended"]
        old = ended[0].partition("/")[2] if ended else "never"
        return {
            "worker": Known(prey.boot.worker, prey.other.worker, prey.earlier.worker, "evil-1#999999999"),
            "token": Known(f"dhj_{EVIL}_{EVIL}", links["token"].anothers, links["token"].old, links["token"].future),
            "role": Known("worker", "admin", "app", "operator"),
            "tenant": Known("default", "other", "old", "new"),
            "scopes": Known(["workers:register"], ["fleet:write"], ["lives:push"], ["keys:write"]),
            "live_id": Known(viewed, shown, old, f"{EVIL}-next"),
            "key": Known(f"{EVIL}key", self._audience.session or EVIL, f"{EVIL}old", f"{EVIL}new"),
            "name": Known("live.js", "../../../etc/passwd", "old.js", "new.js"),
            "text": Known(f"{EVIL} says", f"{EVIL} says of another", f"{EVIL} says of old", f"{EVIL} will say"),
            "kind": Known("text", "config", "interrupt", "end"),
            "request_id": Known(msgspec.UNSET, f"{EVIL}-other", f"{EVIL}-old", f"{EVIL}-new"),
            "frame": Known(EVIL, f"{EVIL} other", f"{EVIL} old", f"{EVIL} new"),
            OFFER: Known(self._offer, self._offer.replace("UDP", "TCP"), "v=0\r\n", "v=9\r\n"),
        }

    def _shown(self, call: Call, prey: Prey) -> str:
        if call.shown == "boot":
            return self._hostile.tokens.issue(prey.boot)
        return self._viewer if call.shown == "viewer" else self._hostile.deployment.access.texts["hostile"]

    def _url(self, role: str) -> str:
        deployment = self._hostile.deployment
        return deployment.room if role == "room" else self._hostile.rng.choice(deployment.dispatch)

    def _wire(self, call: Call, given: Mapping[str, Any], token: str) -> bytes:
        """The request as it is sent."""
        path, body, kind = call.path, b"", "application/json"
        document = {name: given[name] for name, (place, _) in call.fields.items() if place == "body"}
        for name, (place, _) in call.fields.items():
            if place == "path":
                path = path.replace(f"{{{name}}}", quote(str(given[name]), safe=""))
        if OFFER in call.fields:
            body, kind = str(given[OFFER]).encode(), whep.SDP
        elif call.body is not None or NO_FIELD in call.fields:
            sent = {name: value for name, value in document.items() if value is not msgspec.UNSET and name != NO_FIELD}
            if NO_FIELD in document:
                sent[EVIL] = document[NO_FIELD]
            body = msgspec.json.encode(sent)
        head = [f"{call.method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token}"]
        head += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"] if body else []
        return "\r\n".join([*head, "", ""]).encode() + body

    async def _ask(self, call: Call, given: Mapping[str, Any], token: str) -> tuple[int, bytes]:
        async with connected(self._url(call.role)) as (reader, writer):
            writer.write(self._wire(call, given, token))
            return await answer(reader)

    def _check(self, call: Call, given: Mapping[str, Any], answer: bytes, prey: Prey) -> None:
        """A request that was granted is about what is the sender's own."""
        wrongful = False
        if call.role == "room" and call.path.startswith("/v1/"):
            viewed = VIEWED.partition("/")[2]
            if "live_id" in given:
                wrongful = given["live_id"] != viewed
            else:
                wrongful = any(each["live_id"] != viewed for each in json.loads(answer)["lives"])
        elif "worker" in call.fields:
            wrongful = given["worker"] != prey.boot.worker
        elif call.path == MINT.path:
            claims = jwt.decode(json.loads(answer)["token"], options={"verify_signature": False})
            wrongful = (claims["role"], claims["tenant"]) != ("worker", "default")
        if wrongful:
            self._hostile.tell(f"{call.name} was granted: {given}")

    # -- many times

    async def repeat(self, message: str, times: int) -> int:
        prey = self._hostile.prey(m.Pull)
        self._offer = self._offer or await offer()
        if message in TOKENS:
            role, wire = self._with_token(message, prey, self._valid(message, prey))
        else:
            call, known = self._calls[message], self._known(prey)
            given = {name: self._own(name, type_, known) for name, (_, type_) in call.fields.items()}
            role, wire = call.role, self._wire(call, given, self._shown(call, prey))
        until, before = time.monotonic() + REPEATING_S, self._hostile.coverage.repeats_of(message)
        async with asyncio.TaskGroup() as group:
            for share in shares(times, CONNECTIONS):
                group.create_task(self._burst(message, self._url(role), wire, share, until))
        return self._hostile.coverage.repeats_of(message) - before

    async def _burst(self, message: str, url: str, wire: bytes, times: int, until: float) -> None:
        """Send the request so often on one connection, BURST at a time, or until it is time for others."""
        with contextlib.suppress(OSError, TimeoutError):
            async with connected(url) as (reader, writer):
                while times > 0 and time.monotonic() < until:
                    count = min(BURST, times)
                    await self._hostile.pace(count)
                    writer.write(wire * count)
                    for _ in range(count):
                        status, _ = await answer(reader)
                        self._hostile.coverage.repeated(message, "answered" if status < 300 else "refused", 1)
                        times -= 1

    # -- forged tokens

    def _valid(self, name: str, prey: Prey) -> str:
        if name == "viewer token":
            return self._viewer
        if name == "boot token":
            return self._hostile.tokens.issue(prey.boot)
        generation = Generation(prey.own.worker, prey.own.record.epoch)
        return self._hostile.tokens.issue_publish(Publishing(prey.own.live, generation, prey.boot.key))

    def _with_token(self, name: str, prey: Prey, token: str) -> tuple[str, bytes]:
        """A request that shows a token, and the role that it is for."""
        if name == "boot token":
            call = self._calls["dispatch say_blocked"]
            given = {"worker": prey.boot.worker, "blocked_ms": 1, "frame": EVIL, "tell": False}
            return "dispatch", self._wire(call, given, token)
        path = PUBLISH if name == "publish token" else f"/v1/lives/{VIEWED.partition('/')[2]}/state"
        return "room", f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()

    async def _forged(self, row: Row, kind: str, prey: Prey) -> str:
        """Show a token with one wrong claim, where it would be of most use."""
        valid = self._valid(row.message, prey)
        claims = {**claims_of(valid), **jwt.get_unverified_header(valid)}
        own = claims.get(row.field, "")
        type_ = value_of_type(own)
        value = wrong(kind, type_, self._known_claim(row.field, own, prey))
        true_key = row.field in TIMES and kind != "wrong type"
        token = self._forge(row.message, valid, row.field, value, true_key=true_key)
        if row.message == "boot token" and kind == "another's":
            # Also where a link is told who its sender is.
            return await self._links.say(m.Resume, [m.Resume(token)], prey)
        role, wire = self._with_token(row.message, prey, token)
        if row.message == "publish token":
            wire = wire[:-2] + UPGRADE  # Otherwise a token that is accepted would be refused for want of a WebSocket.
        if row.message == "viewer token" and row.field == "live":
            wire = wire.replace(f"/{VIEWED.partition('/')[2]}/".encode(), f"/{SHOWN.partition('/')[2]}/".encode())
        async with connected(self._url(role)) as (reader, writer):
            writer.write(wire)
            status, _ = await answer(reader)
        if status < 300 and not true_key and token != valid:
            self._hostile.tell(f"a forged {row.message} was accepted: {row.field} {value!r:.100}")
        return "answered" if status < 300 else "refused"

    def _known_claim(self, claim: str, own: Any, prey: Prey) -> Known:
        hour = 3_600
        known = {
            "sub": Known(own, prey.other.worker, prey.earlier.worker, "evil-1#999999999"),
            "live": Known(own, SHOWN, "default/never", f"default/{EVIL}"),
            "epoch": Known(own, prey.state.lives[SHOWN].epoch if SHOWN in prey.state.lives else 1),
            "key": Known(own, self._hostile.deployment.access.records["worker"].id),
            "aud": Known(own, "dhsched-api"),
            "alg": Known(own, "none", "HS256", "EdDSA"),
            "kid": Known(own, "1", "0", "99"),
            "exp": Known(own, own, int(time.time()) - hour, int(time.time()) + 10**9),
            "nbf": Known(own, own, int(time.time()) - hour, int(time.time()) + hour),
            "iat": Known(own, own, int(time.time()) - 400 * 24 * hour, int(time.time()) + hour),
        }
        return known.get(claim, Known(own))

    def _forge(self, name: str, token: str, claim: str, value: Any, *, true_key: bool) -> str:
        header, claims = jwt.get_unverified_header(token), claims_of(token)
        (header if claim in HEADER else claims)[claim] = value
        if name == "publish token" and (shown := self._hostile.state().lives.get(SHOWN)) and value == SHOWN:
            claims |= {"sub": shown.selected, "epoch": shown.epoch}  # All that the honest generation's token says.
        way = "true" if true_key else self._hostile.rng.choice(["another key", "no signature", "kept signature"])
        if way == "no signature":
            header["alg"] = "none"
        text = f"{packed(header)}.{packed(claims)}"
        ring = self._hostile.deployment.access.ring
        if way == "kept signature":
            return f"{text}.{token.rpartition('.')[2]}"
        if way == "no signature":
            return f"{text}."
        if name == "viewer token":
            true = private_key(ring.secrets("viewer")[ring.newest("viewer")])
            signature = (true if true_key else Ed25519PrivateKey.generate()).sign(text.encode())
        else:
            secret = ring.secrets("boot")[ring.newest("boot")] if true_key else EVIL
            signature = hmac.new(secret.encode(), text.encode(), hashlib.sha256).digest()
        return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def claims_of(token: str) -> dict[str, Any]:
    return dict(jwt.decode(token, options={"verify_signature": False}))


def packed(part: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(part)).rstrip(b"=").decode()


async def offer() -> str:
    """A valid offer, whose sender will never connect."""
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    pc.addTransceiver("video", direction="recvonly")
    await pc.setLocalDescription(await pc.createOffer())
    sdp = str(pc.localDescription.sdp)
    await pc.close()
    return sdp


# -- plain HTTP: many requests on one connection, and whatever a client library would refuse to send


@contextlib.asynccontextmanager
async def connected(url: str) -> Any:
    at = urlsplit(url)
    async with asyncio.timeout(ANSWER_S):
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(writer.wait_closed(), ANSWER_S)


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status and the body of the next answer. A connection that ended raises ConnectionError."""
    async with asyncio.timeout(5 * ANSWER_S):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            found = re.search(rb"content-length: *([0-9]+)", head)
            return int(head.split(b" ", 2)[1]), await reader.readexactly(int(found[1]) if found else 0)
        except asyncio.IncompleteReadError as ended:
            raise ConnectionError("the server ended the connection") from ended
