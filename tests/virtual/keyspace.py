"""The data of the store in memory: the commands that the product's scripts and records use, and no others.

A reply is a plain value: None, int, bytes, float (a score), a list, a dict (a hash), a list of `Scored` pairs, or `OK`.
How it is said to a client and to a script is decided where it is said (`resp.py`, `lua.py`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

INFINITY = float("inf")
AFTER = b"\xff" * 80  # Above every member: ids have 64 characters at most, and a name is two of them.


class Scored(NamedTuple):
    """A member of a sorted set with its score."""

    member: bytes
    score: float


class OK:
    """The reply of a command that has nothing to say."""


class SortedSet:
    """Members by score, then by name."""

    def __init__(self, scores: dict[bytes, float] | None = None) -> None:
        self.scores = scores or {}
        self.order = sorted((score, member) for member, score in self.scores.items())

    def copy(self) -> SortedSet:
        made = SortedSet()
        made.scores, made.order = dict(self.scores), [*self.order]
        return made

    def put(self, member: bytes, score: float) -> bool:
        """Set a member's score; return whether the member is new."""
        old = self.scores.get(member)
        if old == score:
            return False
        if old is not None:
            del self.order[bisect_left(self.order, (old, member))]
        self.scores[member] = score
        insort(self.order, (score, member))
        return old is None

    def take(self, member: bytes) -> bool:
        old = self.scores.pop(member, None)
        if old is not None:
            del self.order[bisect_left(self.order, (old, member))]
        return old is not None

    def by_score(self, low: bytes, high: bytes) -> list[tuple[float, bytes]]:
        at, until = number_of(low), number_of(high)
        first = bisect_right(self.order, (at, AFTER)) if low[:1] == b"(" else bisect_left(self.order, (at, b""))
        last = bisect_left(self.order, (until, b"")) if high[:1] == b"(" else bisect_right(self.order, (until, AFTER))
        return self.order[first:last]

    def by_name(self, low: bytes, high: bytes) -> list[bytes]:
        """All scores are equal where this is asked."""
        return [member for _, member in self.order if above(member, low) and below(member, high)]


def above(member: bytes, low: bytes) -> bool:
    return low != b"+" and (low == b"-" or (member > low[1:] if low[:1] == b"(" else member >= low[1:]))


def below(member: bytes, high: bytes) -> bool:
    return high != b"-" and (high == b"+" or (member < high[1:] if high[:1] == b"(" else member <= high[1:]))


class Log:
    """A stream: entries by id."""

    def __init__(self) -> None:
        self.entries: list[tuple[tuple[int, int], list[bytes]]] = []
        self.last = (0, 0)

    def copy(self) -> Log:
        made = Log()
        made.entries, made.last = [*self.entries], self.last
        return made


def number_of(text: bytes) -> float:
    return float(text[1:] if text[:1] == b"(" else text)


def shown(number: float) -> bytes:
    """A double as the server writes it."""
    return b"%d" % number if number == int(number) else b"%.17g" % number


class Keyspace:
    """One server's data and its clock. `publish` sends a message to the subscribers of a channel."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.values: dict[bytes, Any] = {}
        self.expires: dict[bytes, int] = {}
        self.now_ms = now_ms
        self.replid = b"0" * 40
        self.full = False
        self.publish: Callable[[bytes, bytes], int] = lambda channel, message: 0
        self.commands: dict[bytes, Callable[..., Any]] = {
            name.upper().encode(): getattr(self, name) for name in dir(self) if name in COMMANDS
        }
        self.commands[b"DEL"] = self.delete  # `del` is a word of Python.

    def snapshot(self) -> tuple[dict[bytes, Any], dict[bytes, int]]:
        """All data as it is now."""
        values = {key: value if isinstance(value, bytes) else value.copy() for key, value in self.values.items()}
        return values, dict(self.expires)

    def restore(self, kept: tuple[dict[bytes, Any], dict[bytes, int]]) -> None:
        self.values, self.expires = kept

    def run(self, name: bytes, args: Iterable[bytes]) -> Any:
        """Run one command; an unknown one is a mistake of this file."""
        return self.commands[name.upper()](*args)

    # -- keys

    def _get(self, key: bytes, kind: type[Any]) -> Any:
        value = self._peek(key)
        if value is None:
            return None
        if not isinstance(value, kind):
            raise TypeError(f"{key!r} is a {type(value).__name__}, not a {kind.__name__}")
        return value

    def _peek(self, key: bytes) -> Any:
        if self.expires and key in self.expires and self.expires[key] <= self.now_ms():
            del self.values[key], self.expires[key]
        return self.values.get(key)

    def _make(self, key: bytes, kind: type[Any]) -> Any:
        value = self._get(key, kind)
        if value is None:
            value = self.values[key] = kind()
        return value

    def _drop_if_empty(self, key: bytes, value: Any) -> None:
        if not (value.scores if isinstance(value, SortedSet) else value):
            self.delete_key(key)

    def delete_key(self, key: bytes) -> int:
        there = self._peek(key) is not None
        self.values.pop(key, None)
        self.expires.pop(key, None)
        return int(there)

    def delete(self, *keys: bytes) -> int:
        return sum(map(self.delete_key, keys))

    def exists(self, *keys: bytes) -> int:
        return sum(self._peek(key) is not None for key in keys)

    def type(self, key: bytes) -> bytes:
        names = {dict: b"hash", list: b"list", SortedSet: b"zset", bytes: b"string", Log: b"stream"}
        value = self._peek(key)
        return b"none" if value is None else names[value.__class__]

    def scan(self, cursor: bytes, *given: bytes) -> list[Any]:
        prefix = given[1].replace(b"\\", b"").removesuffix(b"*")
        return [b"0", [key for key in [*self.values] if key.startswith(prefix) and self._peek(key) is not None]]

    def pexpire(self, key: bytes, ms: bytes) -> int:
        if self._peek(key) is None:
            return 0
        self.expires[key] = self.now_ms() + int(ms)
        return 1

    def expire(self, key: bytes, seconds: bytes) -> int:
        return self.pexpire(key, b"%d" % (int(seconds) * 1000))

    def memory(self, what: bytes, key: bytes, *options: bytes) -> int | None:
        value = self._peek(key)
        return None if value is None else 64 + sum(len(each) + 16 for each in value)

    # -- strings

    def get(self, key: bytes) -> Any:
        return self._get(key, bytes)

    def set(self, key: bytes, value: bytes, *options: bytes) -> Any:
        if b"NX" in options and self._peek(key) is not None:
            return None
        self.values[key] = value
        self.expires.pop(key, None)
        if b"PX" in options:
            self.pexpire(key, options[options.index(b"PX") + 1])
        return OK

    # -- hashes

    def hget(self, key: bytes, field: bytes) -> Any:
        found = self._get(key, dict)
        return None if found is None else found.get(field)

    def hmget(self, key: bytes, *fields: bytes) -> list[Any]:
        found = self._get(key, dict) or {}
        return [found.get(field) for field in fields]

    def hgetall(self, key: bytes) -> dict[bytes, bytes]:
        return dict(self._get(key, dict) or {})

    def hvals(self, key: bytes) -> list[bytes]:
        return [*(self._get(key, dict) or {}).values()]

    def hlen(self, key: bytes) -> int:
        return len(self._get(key, dict) or {})

    def hexists(self, key: bytes, field: bytes) -> int:
        return int(field in (self._get(key, dict) or {}))

    def hstrlen(self, key: bytes, field: bytes) -> int:
        return len((self._get(key, dict) or {}).get(field, b""))

    def hset(self, key: bytes, *pairs: bytes) -> int:
        found = self._make(key, dict)
        before = len(found)
        for at in range(0, len(pairs), 2):
            found[pairs[at]] = pairs[at + 1]
        return len(found) - before

    def hsetnx(self, key: bytes, field: bytes, value: bytes) -> int:
        return 0 if self.hexists(key, field) else self.hset(key, field, value)

    def hincrby(self, key: bytes, field: bytes, by: bytes) -> int:
        found = self._make(key, dict)
        value = int(found.get(field, b"0")) + int(by)
        found[field] = b"%d" % value
        return value

    def hdel(self, key: bytes, *fields: bytes) -> int:
        found = self._get(key, dict)
        if found is None:
            return 0
        gone = sum(found.pop(field, None) is not None for field in fields)
        self._drop_if_empty(key, found)
        return gone

    # -- lists

    def llen(self, key: bytes) -> int:
        return len(self._get(key, list) or [])

    def lindex(self, key: bytes, at: bytes) -> Any:
        found, n = self._get(key, list) or [], int(at)
        return found[n] if -len(found) <= n < len(found) else None

    def lrange(self, key: bytes, first: bytes, last: bytes) -> list[bytes]:
        return within(self._get(key, list) or [], int(first), int(last))

    def rpush(self, key: bytes, *items: bytes) -> int:
        found = self._make(key, list)
        found.extend(items)
        return len(found)

    def lpush(self, key: bytes, *items: bytes) -> int:
        found = self._make(key, list)
        found[:0] = items[::-1]
        return len(found)

    def lpop(self, key: bytes, count: bytes | None = None) -> Any:
        found = self._get(key, list)
        if found is None:
            return None
        taken = found[: int(count or 1)]
        del found[: len(taken)]
        self._drop_if_empty(key, found)
        return taken if count is not None else taken[0]

    def ltrim(self, key: bytes, first: bytes, last: bytes) -> Any:
        found = self._get(key, list)
        if found is not None:
            found[:] = within(found, int(first), int(last))
            self._drop_if_empty(key, found)
        return OK

    def lrem(self, key: bytes, count: bytes, item: bytes) -> int:
        found = self._get(key, list) or []
        kept = [each for each in found if each != item]
        gone = len(found) - len(kept)
        found[:] = kept
        if gone:
            self._drop_if_empty(key, found)
        return gone

    # -- sorted sets

    def zadd(self, key: bytes, *given: bytes) -> int:
        lowers = given[0] == b"LT"
        found, new = self._make(key, SortedSet), 0
        for at in range(int(lowers), len(given), 2):
            score, member = float(given[at]), given[at + 1]
            if not lowers or score < found.scores.get(member, INFINITY):
                new += found.put(member, score)
        return new

    def zrem(self, key: bytes, *members: bytes) -> int:
        found = self._get(key, SortedSet)
        if found is None:
            return 0
        gone = sum(bool(found.take(member)) for member in members)
        self._drop_if_empty(key, found)
        return gone

    def zcard(self, key: bytes) -> int:
        return len(self._sorted(key).order)

    def zscore(self, key: bytes, member: bytes) -> float | None:
        return self._sorted(key).scores.get(member)

    def zmscore(self, key: bytes, *members: bytes) -> list[float | None]:
        return [self.zscore(key, member) for member in members]

    def zrank(self, key: bytes, member: bytes) -> int | None:
        found = self._sorted(key)
        score = found.scores.get(member)
        return None if score is None else bisect_left(found.order, (score, member))

    def zrange(self, key: bytes, first: bytes, last: bytes, *options: bytes) -> list[Any]:
        return scored(within(self._sorted(key).order, int(first), int(last)), options)

    def zrangebyscore(self, key: bytes, low: bytes, high: bytes, *options: bytes) -> list[Any]:
        return scored(limited(self._sorted(key).by_score(low, high), options), options)

    def zrangebylex(self, key: bytes, low: bytes, high: bytes, *options: bytes) -> list[bytes]:
        return limited(self._sorted(key).by_name(low, high), options)

    def zcount(self, key: bytes, low: bytes, high: bytes) -> int:
        return len(self._sorted(key).by_score(low, high))

    def zlexcount(self, key: bytes, low: bytes, high: bytes) -> int:
        return len(self._sorted(key).by_name(low, high))

    def zremrangebyrank(self, key: bytes, first: bytes, last: bytes) -> int:
        order = self._sorted(key).order
        return self.zrem(key, *(member for _, member in within(order, int(first), int(last))))

    def zremrangebyscore(self, key: bytes, low: bytes, high: bytes) -> int:
        return self.zrem(key, *(member for _, member in self._sorted(key).by_score(low, high)))

    def _sorted(self, key: bytes) -> SortedSet:
        return self._get(key, SortedSet) or SortedSet()

    # -- streams

    def xadd(self, key: bytes, *given: bytes) -> bytes:
        log, rest = self._make(key, Log), [*given]
        most = 0
        if rest[0] == b"MAXLEN":
            rest = rest[2:] if rest[1] in (b"~", b"=") else rest[1:]
            most = int(rest.pop(0))
        assert rest.pop(0) == b"*"
        at = self.now_ms()
        log.last = (at, 0) if at > log.last[0] else (log.last[0], log.last[1] + 1)
        log.entries.append((log.last, rest))
        if most:
            del log.entries[:-most]
        return b"%d-%d" % log.last

    def xrange(self, key: bytes, low: bytes, high: bytes, *options: bytes) -> list[Any]:
        log = self._get(key, Log) or Log()
        low_id, after = entry_id(low, 0)
        high_id, before = entry_id(high, 2**63)
        found = [
            [b"%d-%d" % at, fields]
            for at, fields in log.entries
            if (at > low_id or (at == low_id and not after)) and (at < high_id or (at == high_id and not before))
        ]
        return found[: int(options[1])] if options else found

    def xrevrange(self, key: bytes, high: bytes, low: bytes, *options: bytes) -> list[Any]:
        found = self.xrange(key, low, high)[::-1]
        return found[: int(options[1])] if options else found

    # -- the server

    def time(self) -> list[bytes]:
        now = self.now_ms()
        return [b"%d" % (now // 1000), b"%d" % (now % 1000 * 1000)]

    def info(self, *sections: bytes) -> bytes:
        used = 95 if self.full else 5
        lines = (
            *(b"redis_version:7.2.4", b"role:master", b"connected_slaves:0"),
            *(b"master_replid:" + self.replid, b"master_repl_offset:0"),
            *(b"used_memory:%d" % used, b"maxmemory:100", b"maxmemory_policy:noeviction", b"aof_enabled:1"),
        )
        return b"\r\n".join(lines) + b"\r\n"

    def spublish(self, channel: bytes, message: bytes) -> int:
        return self.publish(channel, message)


COMMANDS = frozenset(
    (
        *("exists", "type", "scan", "pexpire", "expire", "memory", "get", "set", "hget", "hmget", "hgetall"),
        *("hvals", "hlen", "hexists", "hstrlen", "hset", "hsetnx", "hincrby", "hdel", "llen", "lindex", "lrange"),
        *("rpush", "lpush", "lpop", "ltrim", "lrem", "zadd", "zrem", "zcard", "zscore", "zmscore", "zrank"),
        *("zrange", "zrangebyscore", "zrangebylex", "zcount", "zlexcount", "zremrangebyrank", "zremrangebyscore"),
        *("xadd", "xrange", "xrevrange", "time", "info", "spublish"),
    )
)
"""The methods that are commands, beside `delete`."""


def within(items: list[Any], first: int, last: int) -> list[Any]:
    """The part of a list that two ranks name, the last one included; negative ones count from the end."""
    size = len(items)
    first = max(0, first + size if first < 0 else first)
    last = last + size if last < 0 else last
    return items[first : last + 1] if last >= first else []


def limited(items: list[Any], options: tuple[bytes, ...]) -> list[Any]:
    if b"LIMIT" not in options:
        return items
    at = options.index(b"LIMIT")
    offset, count = int(options[at + 1]), int(options[at + 2])
    return items[offset:] if count < 0 else items[offset : offset + count]


def scored(items: list[tuple[float, bytes]], options: tuple[bytes, ...]) -> list[Any]:
    if b"WITHSCORES" in options:
        return [Scored(member, score) for score, member in items]
    return [member for _, member in items]


def entry_id(text: bytes, missing: int) -> tuple[tuple[int, int], bool]:
    """An id of a stream, and whether it is excluded."""
    if text in (b"-", b"+"):
        return ((0, 0) if text == b"-" else (2**63, 2**63)), False
    excluded = text[:1] == b"("
    ms, _, n = text.removeprefix(b"(").partition(b"-")
    return (int(ms), int(n) if n else missing), excluded


def flat(pairs: Iterable[Any]) -> Iterator[Any]:
    for pair in pairs:
        yield from pair
