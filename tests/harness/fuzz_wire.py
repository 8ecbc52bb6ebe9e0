"""Requests and frames as bytes on a raw socket, for the fuzz table."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import socket
import struct
from typing import NamedTuple

SENDER_READ_BYTES = 4_096  # The sender reads little at a time, because its memory is measured with the roles'.
END = b"\r\n\r\n"


class Answered(NamedTuple):
    """A status, a close code or `ok`, and the bytes that came back: they are on the wire, too."""

    what: str
    answer_bytes: int


def upgrade_request(path: str, token: str = "") -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    return (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Extensions: permessage-deflate\r\n{shown}\r\n"
    ).encode()


def send_request(connection: socket.socket, wire: bytes) -> Answered:
    """Send the request, read the answer to its end, and return its status; `cut` if the connection ended without."""
    with contextlib.suppress(ConnectionError):
        connection.sendall(wire)
    got, head, left = 0, b"", 1
    with contextlib.suppress(ConnectionError):
        while left > 0 and (more := connection.recv(SENDER_READ_BYTES)):
            got += len(more)
            if head.endswith(END):
                left -= len(more)
                continue
            head += more
            if END in head:
                head, _, body = head.partition(END)
                found = re.search(rb"content-length: *([0-9]+)", head.lower())
                left = (int(found[1]) if found else 0) - len(body)
                head += END
    return Answered(head.split(b" ")[1].decode() if head else "cut", got)


def frame(payload: bytes, *, text: bool, flags: int = 0x80) -> bytes:
    """Return a WebSocket frame of a client. Its mask is zero, so that the payload stays as it is."""
    length = len(payload)
    if length < 126:
        size = bytes([0x80 | length])
    elif length < 65_536:
        size = bytes([0x80 | 126]) + struct.pack(">H", length)
    else:
        size = bytes([0x80 | 127]) + struct.pack(">Q", length)
    return bytes([flags | (1 if text else 2)]) + size + bytes(4) + payload


PING = bytes([0x89, 0x80]) + bytes(4)
CLOSE, PONG = 8, 10


def send_frame(connection: socket.socket, wire: bytes) -> Answered:
    """Send a frame and a ping; return `ok` when the ping is answered, which is after the frame, or the close code."""
    got = 0
    with contextlib.suppress(ConnectionError):
        connection.sendall(wire + PING)
    try:
        while True:
            kind, payload = read_frame(connection)
            got += len(payload)
            if kind == PONG:
                return Answered("ok", got)
            if kind == CLOSE:
                return Answered(str(int.from_bytes(payload[:2], "big")), got)
    except (ConnectionError, EOFError):
        return Answered("cut", got)


def read_frame(connection: socket.socket) -> tuple[int, bytes]:
    first, second = exactly(connection, 2)
    length = second & 127
    if length == 126:
        (length,) = struct.unpack(">H", exactly(connection, 2))
    elif length == 127:
        (length,) = struct.unpack(">Q", exactly(connection, 8))
    return first & 15, exactly(connection, length)


def exactly(connection: socket.socket, count: int) -> bytes:
    got = bytearray()
    while len(got) < count:
        more = connection.recv(min(count - len(got), SENDER_READ_BYTES))
        if not more:
            raise EOFError
        got += more
    return bytes(got)
