"""A real Valkey server as the store of a virtual run, behind the same connections as the keyspace in memory.

The server has the data and runs the scripts. What would come from its own clock and its own name is given to it, so
that a run takes the same steps with the same answers as on the keyspace in memory (`test_real.py`):

- Time, and the server's name: `virtual:now` and `virtual:info` are written before each script, and scripts read these
  keys instead of TIME and INFO (PRELUDE).
- Messages: SPUBLISH writes to a list, from which they go to the subscribers on the net, before the script's reply.
- Keys that expire: a script says when, and the key is deleted at that virtual time.
- Entries of logs have the virtual time in their ids.

A command is sent, and its reply awaited, while virtual time stands still.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import hiredis

from dhsched.store.server.embedded import choose_server_binary
from tests.virtual.keyspace import Keyspace
from tests.virtual.store import StoreServer

START_S = 30.0  # A server that does not answer after this long does not run here.
REPLY_S = 60.0  # The same for a command.
READ_BYTES = 65_536
IN_ORDER = 1_000_000_000  # Hashes keep the order in which their fields came, as in memory: by a hash it is chance.
OPTIONS = {
    "port": 0,
    "save": "",
    "appendonly": "no",
    "maxmemory-policy": "noeviction",
    "hash-max-listpack-entries": IN_ORDER,
    "hash-max-listpack-value": IN_ORDER,
}
LEFT_OUT = ("store-move",)  # Faults that a server by itself cannot have: it would need a cluster around it.
NOW, INFO, PUBLISHED, EXPIRES = (b"virtual:" + word for word in (b"now", b"info", b"published", b"expires"))

PRELUDE = rb"""
local redis = (function(real)
  local function now() return tonumber(real.call('GET', 'virtual:now')) end
  local function expire(key, ms)
    real.call('RPUSH', 'virtual:expires', key, string.format('%d', now() + ms))
    return real.call('EXISTS', key)
  end
  local own = {}
  function own.TIME()
    local ms = now()
    return { string.format('%d', math.floor(ms / 1000)), string.format('%d', ms % 1000 * 1000) }
  end
  function own.INFO() return real.call('GET', 'virtual:info') end
  function own.SPUBLISH(channel, message) return real.call('RPUSH', 'virtual:published', channel, message) end
  function own.PEXPIRE(key, ms) return expire(key, tonumber(ms)) end
  function own.EXPIRE(key, s) return expire(key, 1000 * tonumber(s)) end
  function own.XADD(key, ...)
    local given, ms = { ... }, now()
    local last = real.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    if last then
      ms = math.max(ms, tonumber(string.match(last[1], '^%d+')))
    end
    for i = 1, #given do
      if given[i] == '*' then
        given[i] = string.format('%d-*', ms)
        break
      end
    end
    return real.call('XADD', key, unpack(given))
  end
  return {
    call = function(name, ...)
      if own[name] then
        return own[name](...)
      end
      return real.call(name, ...)
    end,
    error_reply = real.error_reply,
    status_reply = real.status_reply,
  }
end)(redis)
"""


class Server:
    """One connection to a real server, whose replies are awaited where they are asked for."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(REPLY_S)
        self._socket.connect(path)
        self.call(b"HELLO", b"3")

    def raw(self, *words: bytes) -> bytes:
        """Send a command; return its reply as it came."""
        self._socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
        reader, found = hiredis.Reader(), b""
        while reader.gets() is False:
            some = self._socket.recv(READ_BYTES)
            if not some:
                raise ConnectionAbortedError("the real server has closed its connection")
            reader.feed(some)
            found += some
        return found

    def call(self, *words: bytes) -> Any:
        """Send a command; return its reply as a value."""
        reader = hiredis.Reader()
        reader.feed(self.raw(*words))
        reply = reader.gets()
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def close(self) -> None:
        self._socket.close()


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """Run a server for one cell of a virtual run. Time must be real when this begins."""
    folder.mkdir()
    path = folder / "store.sock"
    command = [str(choose_server_binary()), "--unixsocket", str(path)]
    for name, value in OPTIONS.items():
        command += [f"--{name}", str(value)]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + START_S
        while not path.exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        server = Server(str(path))
        try:
            yield server
        finally:
            server.close()
    finally:
        process.kill()
        process.wait()


@contextmanager
def running_each(folder: Path, count: int) -> Iterator[list[Server]]:
    """Run a server for each cell of a run."""
    with ExitStack() as stack:
        yield [stack.enter_context(running(folder / f"store{n}")) for n in range(count)]


class RealKeyspace(Keyspace):
    """The data of a real server, as the parts of a run read and set it back. `now_ms` is its clock."""

    def __init__(self, server: Server, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self.server = server
        self.commands = {}  # Everything is the server's.

    def raw(self, name: bytes, args: list[bytes]) -> bytes:
        """Run a plain command as a client sends it; return its reply as it came."""
        self.forget_expired()
        for_ms = None
        if name == b"SET" and b"PX" in args:
            at = args.index(b"PX")
            for_ms, args = int(args[at + 1]), args[:at] + args[at + 2 :]
        elif name in (b"PEXPIRE", b"EXPIRE"):
            for_ms, name = int(args[1]) * (1 if name == b"PEXPIRE" else 1000), b"EXISTS"
            args = args[:1]
        elif name == b"XADD":
            newest = self.server.call(b"XREVRANGE", args[0], b"+", b"-", b"COUNT", b"1")
            at_ms = max(self.now_ms(), int(newest[0][0].split(b"-")[0]) if newest else 0)
            args = [b"%d-*" % at_ms if word == b"*" else word for word in args]
        elif name == b"TIME":
            return b"*2\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in self.time())
        elif name == b"INFO":
            return b"$%d\r\n%b\r\n" % (len(self.info()), self.info())
        reply = self.server.raw(name, *args)
        if name == b"SET" and reply.startswith(b"+"):
            self.expires.pop(args[0], None)
        if for_ms is not None and reply not in (b"_\r\n", b":0\r\n"):
            self.expires[args[0]] = self.now_ms() + for_ms
        return reply

    def run(self, name: bytes, args: Any) -> Any:
        reader = hiredis.Reader()
        reader.feed(self.raw(name.upper(), [*args]))
        return reader.gets()

    def hset(self, key: bytes, *pairs: bytes) -> int:
        return int(self.server.call(b"HSET", key, *pairs))

    def xrange(self, key: bytes, low: bytes, high: bytes, *options: bytes) -> list[Any]:
        return list(self.server.call(b"XRANGE", key, low, high, *options))

    def type(self, key: bytes) -> bytes:
        return bytes(self.server.call(b"TYPE", key))

    def scan(self, cursor: bytes, *given: bytes) -> list[Any]:
        self.forget_expired()
        return [b"0", sorted(self.server.call(b"KEYS", given[1]))]

    def snapshot(self) -> Any:
        keys = [key for key in self.server.call(b"KEYS", b"*") if not key.startswith(b"virtual:")]
        return {key: self.server.call(b"DUMP", key) for key in keys}, dict(self.expires)

    def restore(self, kept: Any) -> None:
        dumps, self.expires = kept
        self.server.call(b"FLUSHALL")
        for key, dump in dumps.items():
            self.server.call(b"RESTORE", key, b"0", dump)

    def forget_expired(self) -> None:
        """Delete the keys whose time is over."""
        now = self.now_ms()
        for key in [key for key, at in self.expires.items() if at <= now]:
            self.server.call(b"DEL", key)
            del self.expires[key]


class RealScripts:
    """The scripts that clients have loaded, by the hash of what they sent. `run` returns a reply as RESP."""

    def __init__(self, keyspace: RealKeyspace) -> None:
        self._keyspace, self._server = keyspace, keyspace.server
        self._loaded: dict[bytes, bytes] = {}
        self._server.call(b"SCRIPT", b"FLUSH")

    def __contains__(self, sha: bytes) -> bool:
        return sha in self._loaded

    def load(self, sha: bytes, source: bytes) -> None:
        if sha not in self._loaded:
            shebang, _, body = source.partition(b"\n")
            self._loaded[sha] = self._server.call(b"SCRIPT", b"LOAD", shebang + PRELUDE + body)

    def run(self, sha: bytes, keys: list[bytes], argv: list[bytes]) -> bytes:
        keyspace, call = self._keyspace, self._server.call
        keyspace.forget_expired()
        call(b"MSET", NOW, b"%d" % keyspace.now_ms(), INFO, keyspace.info())
        if keyspace.full:
            call(b"CONFIG", b"SET", b"maxmemory", b"1")
        reply = self._server.raw(b"EVALSHA", self._loaded[sha], b"%d" % len(keys), *keys, *argv)
        if keyspace.full:
            call(b"CONFIG", b"SET", b"maxmemory", b"0")
        expires, published = (call(b"LRANGE", key, b"0", b"-1") for key in (EXPIRES, PUBLISHED))
        if expires or published:
            call(b"DEL", EXPIRES, PUBLISHED)
        for key, at in zip(expires[::2], expires[1::2], strict=True):
            keyspace.expires[key] = int(at)
        for channel, message in zip(published[::2], published[1::2], strict=True):
            keyspace.publish(channel, message)
        return reply


class RealStore(StoreServer):
    """The store of a run, with the data on a real server."""

    def __init__(self, server: Server, *given: Any) -> None:
        self._server = server
        super().__init__(*given)

    def _make_keyspace(self) -> Keyspace:
        return RealKeyspace(self._server, self.now_ms)

    def _make_scripts(self) -> Any:
        assert isinstance(self.keyspace, RealKeyspace)
        return RealScripts(self.keyspace)

    def _plain(self, name: bytes, args: list[bytes]) -> bytes:
        assert isinstance(self.keyspace, RealKeyspace)
        return self.keyspace.raw(name, args)
