"""The keyspace of virtual runs answers as a real server does: random commands on both, every reply compared."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import hiredis

from dhsched.store.link.link import Link
from tests.harness.servers import empty_server
from tests.virtual.keyspace import Keyspace
from tests.virtual.store import said

COMMANDS = 4_000
SOME = ("a", "b", "c")


def number(r: Random) -> str:
    return str(r.randrange(-3, 6))


def bound(r: Random) -> str:
    return r.choice(["-inf", "+inf", number(r), "(" + number(r), "0.5"])


def name(r: Random) -> str:
    return r.choice(["-", "+", "[a", "(a", "[b", "(c", "[bb"])


def member(r: Random) -> str:
    return r.choice(["a", "b", "c", "bb", "d"])


def maybe(r: Random, *words: str) -> list[str]:
    return [*words] if r.random() < 0.4 else []


HASHES: dict[str, Callable[[Random], list[str]]] = {
    "HSET": lambda r: [member(r), number(r), *maybe(r, member(r), number(r))],
    "HSETNX": lambda r: [member(r), number(r)],
    "HGET": lambda r: [member(r)],
    "HMGET": lambda r: [member(r), member(r)],
    "HGETALL": lambda r: [],
    "HVALS": lambda r: [],
    "HLEN": lambda r: [],
    "HEXISTS": lambda r: [member(r)],
    "HSTRLEN": lambda r: [member(r)],
    "HINCRBY": lambda r: [member(r), number(r)],
    "HDEL": lambda r: [member(r), *maybe(r, member(r))],
}
LISTS: dict[str, Callable[[Random], list[str]]] = {
    "RPUSH": lambda r: [member(r), *maybe(r, member(r))],
    "LPUSH": lambda r: [member(r), *maybe(r, member(r))],
    "LPOP": lambda r: maybe(r, str(r.randrange(1, 4))),
    "LLEN": lambda r: [],
    "LINDEX": lambda r: [number(r)],
    "LRANGE": lambda r: [number(r), number(r)],
    "LTRIM": lambda r: [r.choice(["0", "1", "-4"]), "-1"],
    "LREM": lambda r: ["0", member(r)],
}
SORTED: dict[str, Callable[[Random], list[str]]] = {
    "ZADD": lambda r: [*maybe(r, "LT"), number(r), member(r), "0.25", member(r)],
    "ZREM": lambda r: [member(r)],
    "ZCARD": lambda r: [],
    "ZSCORE": lambda r: [member(r)],
    "ZMSCORE": lambda r: [member(r), member(r)],
    "ZRANK": lambda r: [member(r)],
    "ZRANGE": lambda r: [number(r), number(r), *maybe(r, "WITHSCORES")],
    "ZRANGEBYSCORE": lambda r: [bound(r), bound(r), *maybe(r, "WITHSCORES"), *maybe(r, "LIMIT", "0", "2")],
    "ZCOUNT": lambda r: [bound(r), bound(r)],
    "ZREMRANGEBYRANK": lambda r: ["0", r.choice(["0", "-4", "-3"])],
    "ZREMRANGEBYSCORE": lambda r: ["-inf", number(r)],
}
NAMED: dict[str, Callable[[Random], list[str]]] = {
    "ZADD": lambda r: ["0", member(r)],
    "ZREM": lambda r: [member(r)],
    "ZRANGEBYLEX": lambda r: [name(r), name(r), *maybe(r, "LIMIT", "0", "2")],
    "ZLEXCOUNT": lambda r: [name(r), name(r)],
}
STRINGS: dict[str, Callable[[Random], list[str]]] = {
    "SET": lambda r: [member(r), *maybe(r, "NX")],
    "GET": lambda r: [],
}
KEYS: dict[str, Callable[[Random], list[str]]] = {
    "EXISTS": lambda r: [],
    "TYPE": lambda r: [],
    "DEL": lambda r: [],
    "PEXPIRE": lambda r: ["100000"],
}
KINDS = {"h": HASHES, "l": LISTS, "z": SORTED, "n": NAMED, "s": STRINGS}


def drawn(r: Random) -> list[str]:
    kind = r.choice([*KINDS])
    commands = KEYS if r.random() < 0.08 else KINDS[kind]
    command = r.choice([*commands])
    return [command, f"{kind}:{r.choice(SOME)}", *commands[command](r)]


def answered(keyspace: Keyspace, command: list[str]) -> Any:
    reader = hiredis.Reader()
    reader.feed(said(keyspace.run(command[0].encode(), [word.encode() for word in command[1:]])))
    return reader.gets()


async def test_random_commands_answer_as_on_a_real_server() -> None:
    r, keyspace = Random(1), Keyspace(lambda: 1_700_000_000_000)
    commands = [drawn(r) for _ in range(COMMANDS)]
    async with empty_server("valkey") as server, await Link.open(server.address, {}) as link:
        for n, command in enumerate(commands):
            expected = await link.call(*command)
            assert answered(keyspace, command) == expected, f"command {n}: {command}"
