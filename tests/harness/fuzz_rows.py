"""The rows of the fuzz table: each endpoint and each kind of frame with each shape of input.

Endpoints come from the lists that the roles serve, messages from the unions that their decoders read, and values from
the types: whoever adds an endpoint or a message adds its rows.
"""

from __future__ import annotations

import gzip
import re
import socket
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, get_args
from urllib.parse import quote, urlencode

import msgspec
from msgspec import inspect

from dhsched.access.callers import ROLES
from dhsched.access.rules import rule_of
from dhsched.dispatch.app import Replica
from dhsched.dispatch.worker_link import PATH as LINK
from dhsched.infer import push
from dhsched.infer.pull import PATH as PULL
from dhsched.links import messages
from dhsched.links.json_bounds import CONTAINERS_MAX, STRINGS_MAX
from dhsched.room import viewing
from dhsched.room.offers import CODECS_MAX, LINES_MAX, MEDIA_MAX
from dhsched.room.packets import CAPTION_BYTES_MAX
from dhsched.room.whep import SDP_BYTES_MAX
from dhsched.tokens import Publishing
from dhsched.types import Generation
from dhsched.web import MINT, Endpoint
from dhsched.web.endpoints import BODY_BYTES_MAX
from tests.harness.fuzz import Deployment, Row, Sender
from tests.harness.fuzz_values import HONEST, struct_of, value
from tests.harness.fuzz_wire import frame, send_frame, send_request, upgrade_request

DEEP = 60  # Levels that every decoder accepts.
OTHERS = dict.fromkeys(("live_id", "digital_id", "pool", "name", "tenant"), "spare")
"""What a request that changes something names, so that the next row finds the deployment as it was."""


# -- bodies


def padded(body: bytes, size: int) -> bytes:
    """Return a JSON object with spaces in it, up to this size."""
    return body[:-1] + b" " * (size - len(body)) + body[-1:]


def filled(start: bytes, part: bytes, end: bytes, size: int = BODY_BYTES_MAX) -> bytes:
    """Return `start`, as many `part`s as there is space for, and `end`."""
    return start + part * ((size - len(start) - len(end)) // len(part)) + end


def open_field(kind: type[Any]) -> str:
    """Return a field that takes any JSON, or a name that is no field."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    taken = [each.encode_name for each in found.fields if takes_any(each.type)]
    return taken[0] if taken else next((each.encode_name for each in found.fields), "x")


def takes_any(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.Metadata):
        return takes_any(kind.type)
    if isinstance(kind, inspect.UnionType):
        return any(map(takes_any, kind.types))
    return isinstance(kind, inspect.DictType | inspect.AnyType)


def bodies(kind: type[Any]) -> Iterator[tuple[str, bytes]]:
    """Yield the shapes of a JSON body."""
    honest = msgspec.json.encode(struct_of(kind, large=False))
    large = msgspec.json.encode(struct_of(kind, large=True))
    as_config = b'"kind":"config",' if {"kind", "config"} <= {*kind.__struct_fields__} else b""
    before = honest[:-1] + (b"," if len(honest) > 2 else b"") + as_config + f'"{open_field(kind)}":'.encode()
    yield "smallest", b"{}"
    yield "honest", honest
    yield "every field at its largest", large if len(large) <= BODY_BYTES_MAX else large[:BODY_BYTES_MAX]
    yield "largest", padded(honest, BODY_BYTES_MAX)
    yield "one byte larger", padded(honest, BODY_BYTES_MAX + 1)
    yield "deepest that is valid", before + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}"
    yield "deepest", filled(before, b"[", b"")
    yield "deep objects", filled(before, b'{"a":', b"")
    yield "most elements", filled(before + b'{"a":[', b"0,", b"0]}}")
    yield "most objects", filled(before + b'{"a":[', b"{},", b"{}]}}")
    keys = ",".join(f'"{n:x}":0' for n in range(6_000)).encode()
    yield "most keys", before + b"{" + keys + b"}}"
    yield "same key", filled(before + b"{", b'"":0,', b'"":0}}')
    yield "longest number", filled(before + b'{"a":', b"9", b"}}")
    yield "longest fraction", filled(before + b'{"a":0.', b"7", b"}}")
    yield "most fractions", filled(before + b'{"a":[', b"1.7976931348623157e308,", b"0]}}")
    yield "whole numbers as fractions", filled(before + b"[", b"2.0,", b"2.0]}")
    yield "most exponents", filled(before + b'{"a":[', b"1e308,", b"0]}}")
    yield "most texts", filled(before + b'{"a":[', b'"a",', b"0]}}")
    texts = ",".join(f'"{n:03x}"' for n in range(STRINGS_MAX - 40)).encode()
    yield "most allowed texts", before + b'{"a":[' + texts + b"]}}"
    allowed = ",".join(f'"{n:x}":0' for n in range(STRINGS_MAX - 40)).encode()
    yield "most allowed keys", before + b"{" + allowed + b"}}"
    yield "most allowed objects", before + b'{"a":[' + b"{}," * (CONTAINERS_MAX - 9) + b"{}]}}"
    yield "most large numbers", filled(before + b'{"a":[', b"257,", b"257]}}")
    yield "escapes", filled(before + b'{"a":"', b"\\u00e9", b'"}}')
    yield "open text", filled(before + b'"', b'\\"', b"")
    yield "invalid UTF-8", filled(before + b'"', b"\xff", b'"}')
    yield "zeros", bytes(BODY_BYTES_MAX)


# -- endpoints


def endpoints_of(deployment: Deployment) -> dict[str, list[Endpoint]]:
    made = deployment.at.fleet
    return {
        "dispatch": Replica(made.replicas[0]).endpoints(),
        "infer": [*push.endpoints(made.controllers[0].context), MINT],
        "room": viewing.endpoints(deployment.at.room.rooms),
    }


def request(method: str, target: str, body: bytes | None, *headers: str) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def path_of(deployment: Deployment, endpoint: Endpoint) -> str:
    changes = endpoint.method != "GET" and "text" not in endpoint.path
    path = endpoint.path
    for each in inspect.type_info(endpoint.path_type).fields:  # type: ignore[attr-defined]
        if "worker" in each.name:
            given = deployment.workers[-1 if changes else 0]
        elif each.name == "live_id":
            given = "spare" if changes else "demo"
        else:
            given = (OTHERS if changes else HONEST).get(each.name) or value(each.type, each.name, large=False)
        path = path.replace(f"{{{each.name}}}", quote(str(given), safe=""))
    return path


def shown_at(role: str, name: str) -> str:
    """Return what a request to this endpoint shows, where access is by keys: what a caller who needs it has."""
    if role == "room":
        return "viewer"
    rule = rule_of(name)
    if rule.public:
        return ""
    if "token" not in rule.shown:
        return "boot" if "boot" in rule.shown else "app key"
    fits = [each for each in ROLES if rule.everyone or ROLES[each] & rule.scopes]
    return fits[0] if fits else "admin"


def endpoint_rows(deployment: Deployment, role: str, endpoint: Endpoint) -> Iterator[Row]:
    path = path_of(deployment, endpoint)
    to = partial(Sender.connect, role=role)
    shown = shown_at(role, endpoint.name)
    row = partial(Row, f"{role} {endpoint.name}", open=to, send=send_request)
    body = b"{}" if endpoint.body is not None else None
    if endpoint.body is not None:
        for shape, given in bodies(endpoint.body):
            yield row(shape, request(endpoint.method, path, given), shown=shown)
        body = msgspec.json.encode(struct_of(endpoint.body, large=False))
    else:
        yield row("honest", request(endpoint.method, path, None), shown=shown)
    if deployment.access == "keys" and shown:
        yield row("honest, no token", request(endpoint.method, path, body))
        large = None if body is None else padded(body, BODY_BYTES_MAX)
        yield row("largest, forged token", request(endpoint.method, path, large), shown=f"forged {shown}")
    queries = {
        "query, every field at its largest": urlencode(struct_of(endpoint.query, large=True)),
        "query, most parameters": "&".join(f"{n:x}=" for n in range(1_600)),
        "query, escapes": "a=" + "%ff" * 2_600,
        "query, long number": "limit=" + "9" * 7_900,
    }
    for shape, query in queries.items():
        if query:
            yield row(shape, request(endpoint.method, f"{path}?{query}", body), shown=shown)
    if "{" in endpoint.path:
        for shape, part in (
            ("path, longest", "a" * 7_900),
            ("path, escapes", "%ff" * 2_600),
            ("path, dots", "../" * 2_600),
        ):
            target = re.sub(r"{\w+}", part, endpoint.path, count=1)
            target = re.sub(r"{\w+}", "a", target)
            yield row(shape, request(endpoint.method, target, body), shown=shown)


def head_rows(role: str) -> Iterator[Row]:
    """Yield heads as such, and the routes that every role has."""
    to = partial(Sender.connect, role=role)
    routes = {"/healthz": "healthz", "/readyz": "readyz", "/openapi.json": "openapi", "/metrics": "metrics"}
    for path, name in {**routes, "/nothing": "elsewhere"}.items():
        yield Row(f"{role} {path}", "honest", request("GET", path, None), to, send_request, shown_at(role, name))
    shapes = {
        "most headers": [f"X-{n:x}: a" for n in range(3_000)],
        "long header": ["X-A: " + "a" * 100_000],
        "long request id": ["X-Request-Id: " + "a" * 8_000],
        "long token": ["Authorization: Bearer " + "a." * 4_000],
        "long origin": ["Origin: http://" + "a." * 4_000],
        "most hops": ["X-Forwarded-For: " + "1.1.1.1," * 1_000],
        "not text": ["X-A: " + "\xff" * 8_000],
    }
    for shape, headers in shapes.items():
        yield Row(f"{role} head", shape, request("GET", "/healthz", None, *headers), to, send_request)
    yield Row(f"{role} head", "no end", b"GET /" + b"a" * 200_000, to, send_request)
    yield Row(f"{role} head", "garbage", bytes(range(256)) * 100 + b"\r\n\r\n", to, send_request)
    chunks = b"1\r\n \r\n" * 60_000 + b"0\r\n\r\n"
    head = b"POST /v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    shown = shown_at(role, "mint_token")
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks
    yield Row(f"{role} body", "smallest chunks", chunked, to, send_request, shown)
    for coding, bomb in (("deflate", zlib.compress(bytes(50_000_000), 9)), ("gzip", gzip.compress(bytes(50_000_000)))):
        coded = head + f"Content-Encoding: {coding}\r\nContent-Length: {len(bomb)}\r\n\r\n".encode() + bomb
        yield Row(f"{role} body", f"most compressible, {coding}", coded, to, send_request, shown)


# -- frames


def message_of(kind: type[msgspec.Struct], *, large: bool) -> list[Any]:
    """Return a message as its array. The fields of one that is not large are all there, too."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    return [found.tag, *(value(each.type, each.name, large=large) for each in found.fields)]


def packed_frames(kind: type[msgspec.Struct]) -> Iterator[tuple[str, bytes]]:
    """Yield the shapes of a msgpack frame with messages of one kind."""
    honest, large = message_of(kind, large=False), message_of(kind, large=True)
    one, longest = msgspec.msgpack.encode(honest), msgspec.msgpack.encode(large)
    size = messages.FRAME_BYTES_MAX
    yield "smallest", b"\x90"
    yield "honest", listed([one])
    yield "every field at its largest", listed([longest])
    yield "most messages", listed([one] * min(messages.MESSAGES_MAX, size // len(one) - 8))
    yield "largest", listed([longest] * max(1, min(messages.MESSAGES_MAX, (size - 8) // len(longest))))
    yield "too many messages", listed([one] * (messages.MESSAGES_MAX + 1))
    yield "unknown fields", listed([msgspec.msgpack.encode([*honest, *[0] * 60_000])])
    yield "deep unknown field", listed([msgspec.msgpack.encode(honest)[:-1] + b"\x91" * 50_000])


def listed(parts: Sequence[bytes]) -> bytes:
    return b"\xdd" + len(parts).to_bytes(4, "big") + b"".join(parts)


SHAPES = {
    "deepest": b"\x91" * 1_000_000,
    "claims most elements": b"\xdd\xff\xff\xff\xff",
    "most elements": listed([b"\xc0"] * 4_000_000),
    "longest text": b"\x91\xdb" + (4_000_000).to_bytes(4, "big") + b"a" * 4_000_000,
    "invalid UTF-8": b"\x91\x91\xda\x10\x00" + b"\xff" * 4_096,
    "zeros": bytes(4_000_000),
    "one byte larger": bytes(messages.FRAME_BYTES_MAX + 1),
}


def link_rows(target: str, kinds: Sequence[type[msgspec.Struct]], to: Open, fresh: Open) -> Iterator[Row]:
    """Yield the rows of a Worker's connection. `fresh` opens one that has not said who it is."""
    for kind in kinds:
        greets = kind in (messages.Register, messages.Resume, messages.Hello)
        for shape, payload in packed_frames(kind):
            opened = fresh if greets else to
            yield Row(f"{target} {kind.__name__}", shape, frame(payload, text=False), opened, send_frame)
    for shape, payload in SHAPES.items():
        yield Row(target, shape, frame(payload, text=False), to, send_frame)
    yield Row(target, "compressed", frame(bytes(4_000), text=False, flags=0xC0), to, send_frame)


Open = Callable[[Sender], socket.socket]


def to_dispatch(sending: Sender, *, register: bool = True) -> socket.socket:
    connection = sending.upgrade("dispatch", LINK, sending.deployment.tokens.get("worker", ""))
    if register:
        said = messages.Register("f", "boot-f", "gpu", messages.MESSAGES_MAX)
        send_frame(connection, frame(messages.encode([said]), text=False))
    return connection


def to_infer(sending: Sender, *, hello: bool = True) -> socket.socket:
    token = sending.deployment.boot_token()
    connection = sending.upgrade("infer", PULL, token)
    if hello:
        send_frame(connection, frame(messages.encode([messages.Hello(token)]), text=False))
    return connection


def refused_sockets() -> Iterator[Row]:
    """Yield upgrades without a token and with a forged one."""
    for role, path, shown in (
        ("dispatch", LINK, "worker"),
        ("infer", PULL, "boot"),
        ("infer", "/v1/stream", "app"),
        ("room", "/v1/publish", "boot"),
    ):
        wire = upgrade_request(path)
        to = partial(Sender.connect, role=role)
        yield Row(f"{role} {path}", "upgrade, no token", wire, to, send_request)
        yield Row(f"{role} {path}", "upgrade, forged token", wire, to, send_request, f"forged {shown}")


STREAM = "/v1/lives/demo/stream?producer=p"


def stream_rows() -> Iterator[Row]:
    size = messages.PUSH_FRAME_BYTES_MAX - 1  # A frame of the limit itself is refused.
    many = b'{"n":%d,"text":"a"}'
    shapes = {
        "smallest": b"{}",
        "honest": b'{"text":"Hello there."}',
        "most items": b"[" + b",".join(many % n for n in range(1, messages.PUSHES_MAX + 1)) + b"]",
        "most tokens": b"[" + b",".join([b'{"token":"a"}'] * messages.PUSHES_MAX) + b"]",
        "too many items": filled(b"[", b"{},", b"{}]", size),
        "largest": filled(b"[", b'{"text":"' + b"a" * 16_000 + b'"},', b'{"text":""}]', size),
        "largest configurations": filled(
            b"[", b'{"kind":"config","config":{"a":"' + b"a" * 16_000 + b'"}},', b"{}]", size
        ),
        "one byte larger": padded(b"{}", size + 1),
        "deepest": b"[" * size,
        "deep objects": filled(b"", b'{"config":', b"", size),
        "deep configuration": b'{"kind":"config","config":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
        "most elements": filled(b'{"kind":"config","config":{"a":[', b"0,", b"0]}}", size),
        "most large numbers": filled(b'{"kind":"config","config":{"a":[', b"257,", b"0]}}", size),
        "most fractions": filled(b'{"kind":"config","config":{"a":[', b"1.7976931348623157e308,", b"0]}}", size),
        "most keys": b'{"kind":"config","config":{' + b",".join(b'"%x":0' % n for n in range(90_000)) + b"}}",
        "longest number": filled(b'{"n":', b"9", b"}", size),
        "most texts": filled(b'{"kind":"config","config":{"a":[', b'"a",', b"0]}}", size),
        "longest text": filled(b'{"text":"', b"a", b'"}', size),
        "escapes": filled(b'{"text":"', b"\\u00e9", b'"}', size),
        "open text": filled(b"{" * 4_097 + b'"', b'\\"', b"", size),
        "braces in a text": filled(b'{"text":"', b'{\\"', b'"}', size),
        "invalid UTF-8": filled(b'{"text":"', b"\xff", b'"}', 100_000),
        "zeros": bytes(size),
    }
    for path in (STREAM, "/v1/stream"):
        for shape, payload in shapes.items():
            for text in (True, False) if shape in ("honest", "invalid UTF-8") else (True,):
                name = f"infer {path.partition('?')[0]}{'' if text else ' binary'}"
                yield Row(name, shape, frame(payload, text=text), partial(to_stream, path), send_frame)
    small = b"".join(frame(many % n, text=True) for n in range(1, 2_001))
    yield Row("infer /v1/lives/demo/stream", "many small frames", small, partial(to_stream, STREAM), send_frame)
    squeezed = frame(bytes(4_000), text=True, flags=0xC0)
    yield Row("infer /v1/stream", "compressed", squeezed, partial(to_stream, "/v1/stream"), send_frame)


def to_stream(path: str, sending: Sender) -> socket.socket:
    return sending.upgrade("infer", path, sending.deployment.tokens.get("app", ""))


def room_rows(deployment: Deployment) -> Iterator[Row]:
    size = deployment.at.room.rooms.settings.packet_bytes_max - 1
    media = b'"video":{"codec":"vp8","clock":90000},"audio":{"codec":"opus","clock":48000}'
    begin = b'{"live":"default/demo","epoch":1,' + media + b"}"
    firsts = {
        "honest": begin,
        "smallest": b"{}",
        "largest": padded(begin, size),
        "one byte larger": padded(begin, size + 1),
        "deepest": b"[" * size,
        "most elements": filled(begin[:-1] + b',"x":[', b"0,", b"0]}", size),
        "longest number": filled(b'{"epoch":', b"9", b"}", size),
        "invalid UTF-8": b'{"live":"' + b"\xff" * 1_000 + b'"}',
    }
    for shape, payload in firsts.items():
        yield Row("room begin", shape, frame(payload, text=True), partial(to_room, b""), send_frame)
    audio = b"\x01\x00" + (20_000).to_bytes(8, "big")
    packets = {
        "honest": audio + b"o" * 80,
        "smallest": b"\x01",
        "largest": audio + b"o" * (size - len(audio)),
        "one byte larger": audio + b"o" * (size + 1 - len(audio)),
        "zeros": bytes(size),
    }
    for shape, payload in packets.items():
        yield Row("room packet", shape, frame(payload, text=False), partial(to_room, begin), send_frame)
    captions = {
        "honest": b'{"seq":1,"text":"Hello"}',
        "largest": padded(b'{"seq":1,"text":"Hello"}', size - len(audio)),
        "deepest": b"[" * CAPTION_BYTES_MAX,
        "most elements": filled(b'{"seq":1,"text":"","x":[', b"0,", b"0]}", CAPTION_BYTES_MAX),
        "invalid UTF-8": b'{"seq":1,"text":"' + b"\xff" * 1_000 + b'"}',
    }
    for shape, payload in captions.items():
        wire = frame(b"\x02" + audio[1:] + payload, text=False)
        yield Row("room caption", shape, wire, partial(to_room, begin), send_frame)
    many = frame(audio + b"o" * 10, text=False) * 2_000
    yield Row("room packet", "many small frames", many, partial(to_room, begin), send_frame)
    offer = b"v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n"
    media = b"m=video 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=mid:0\r\na=rtpmap:96 VP8/90000\r\n"
    fill = partial(filled, size=SDP_BYTES_MAX)
    offers = {
        "smallest": b"v=0\r\n",
        "most media": offer + media * MEDIA_MAX,
        "too many media": fill(offer, media, b""),
        "too many lines": fill(offer + media, b"a\r\n", b""),
        "most lines": offer + media + b"a\r\n" * (LINES_MAX - 8),
        "most codecs": offer + media + b"a=rtpmap:97 VP8/90000\r\n" * (CODECS_MAX - 1),
        "too many codecs": offer + media + b"a=rtpmap:97 VP8/90000\r\n" * (LINES_MAX - 8),
        "most candidates": offer + media + b"a=candidate:1 1 udp 1 127.0.0.1 9 typ host\r\n" * (LINES_MAX - 8),
        "most formats": offer + (b"m=video 9 UDP/TLS/RTP/SAVPF" + b" 96" * 1_350 + b"\r\n") * 7,
        "most feedback": offer + media + b"a=rtcp-fb:* nack\r\n" * (LINES_MAX - 8),
        "most ssrc": offer + media + b"a=ssrc:1 cname:a\r\n" * (LINES_MAX - 8),
        "most groups": offer + b"a=group:BUNDLE 0\r\n" * (CODECS_MAX - 1) + media,
        "long lines": offer + media + (b"a=fmtp:96 " + b"a=1;" * 1_000 + b"\r\n") * 7,
        "longest line": fill(offer + media + b"a=fmtp:96 ", b"a=1;", b"\r\n"),
        "zeros": bytes(SDP_BYTES_MAX),
        "one byte larger": bytes(SDP_BYTES_MAX + 1),
        "invalid UTF-8": b"\xff" * 1_000,
    }
    to = partial(Sender.connect, role="room")
    for shape, payload in offers.items():
        wire = request("POST", "/v1/lives/demo/whep", payload).replace(b"application/json", b"application/sdp")
        yield Row("room offer", shape, wire, to, send_request, shown_at("room", "whep"))


def to_room(begin: bytes, sending: Sender) -> socket.socket:
    at = sending.deployment.at
    tokens = at.fleet.controllers[0].pull_text.tokens
    generation = Generation(sending.deployment.demo_worker, 1)
    token = tokens.issue_publish(Publishing("default/demo", generation))
    connection = sending.upgrade("room", "/v1/publish", token)
    if begin:
        send_frame(connection, frame(begin, text=True))
    return connection


def all_rows(deployment: Deployment) -> Iterator[Row]:
    """Yield every row."""
    for role, endpoints in endpoints_of(deployment).items():
        yield from head_rows(role)
        for endpoint in endpoints:
            yield from endpoint_rows(deployment, role, endpoint)
    link = partial(to_dispatch, register=False)
    yield from link_rows("dispatch link", get_args(messages.FromWorker), to_dispatch, link)
    yield from link_rows("infer pull", get_args(messages.PullSays), to_infer, partial(to_infer, hello=False))
    yield from stream_rows()
    yield from room_rows(deployment)
    if deployment.access == "keys":
        yield from refused_sockets()
