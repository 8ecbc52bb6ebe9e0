"""The first commands on every new connection: log in, check the server, load the scripts.

HELLO 3 (with AUTH and SETNAME), SELECT, INFO server; in a cluster, who owns our slot; then the scripts, the entry and
the channels. The greeting is the same on every connection, because anything can have changed meanwhile: the password,
the version, the role, the scripts, the data.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dhsched.errors import StoreIncompatible, StoreRefused, StoreUnavailable
from dhsched.store.link.address import Address
from dhsched.store.link.cluster import Node, all_nodes, key_slot, slot_owner
from dhsched.store.link.wire import Arg, Call, Subscribing, Wire, pack

VALKEY_MIN = (7, 2)
REDIS_MIN = (7, 0)
ONE_ARGUMENT = b"*1\r\n"  # Before the argument itself, where a command has one.


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The server at the other end. `elsewhere` is the node to use instead, if this server does not own our slot."""

    name: str
    version: str
    cluster: bool = False
    elsewhere: Node | None = None
    peers: list[Node] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


RunScript = Callable[[str, Sequence[Arg], Sequence[Arg]], Awaitable[Any]]
"""Runs one of the link's scripts on the new connection: its name, its keys, its arguments."""


class Entry(Protocol):
    """What a link does on each new connection before any other call."""

    async def enter(self, run: RunScript) -> bytes:
        """Run what is to be run, and return the last argument of every script that is sent on this connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """The client name, scripts, slot key and entry that a link uses on each connection."""

    client_name: str
    scripts: Mapping[str, bytes]
    shas: Mapping[str, bytes]
    slot_key: str | None
    entry: Entry | None = None


async def greet(wire: Wire, address: Address, greeting: Greeting, channels: Iterable[bytes]) -> Server:
    """Make `wire` ready for commands. Raise a StoreError that says why it cannot be."""
    try:
        return await _greet(wire, address, greeting, channels)
    except StoreUnavailable as error:
        reason = await wire.lost
        if wire.garbled:
            raise StoreIncompatible(f"store {wire.store} is not a store: {reason}; check host and port") from error
        tls = "rediss:// if it wants TLS" if not address.tls else "redis:// if it has no TLS"
        raise StoreUnavailable(
            f"store {wire.store} closed the connection during the greeting ({reason}): check that it is a Valkey "
            f"or Redis server, and use {tls}",
            unknown=False,
        ) from error


async def _greet(wire: Wire, address: Address, greeting: Greeting, channels: Iterable[bytes]) -> Server:
    hello, *_, info = await _introduce(wire, address, greeting.client_name)
    if not isinstance(hello, dict) or not isinstance(info, bytes):
        raise StoreIncompatible(f"store {wire.store} answers HELLO with {str(hello)[:80]}: {_wanted()}")
    name, version = _checked_version(wire.store, info)
    cluster = hello.get(b"mode") == b"cluster"
    peers: list[Node] = []
    if cluster and greeting.slot_key is not None:
        myself, slots = await _ask(wire, [("CLUSTER", "MYID"), ("CLUSTER", "SLOTS")])
        peers = all_nodes(slots)
        owner = _owner(wire.store, slots, greeting.slot_key)
        if owner.id != myself.decode():
            return Server(name=name, version=version, cluster=True, elsewhere=owner, peers=peers)
    if hello.get(b"role") != b"master":
        raise StoreRefused(
            f"store {wire.store} is a read-only replica: give the address of its primary, or promote it",
            code="READONLY",
        )
    if greeting.entry is not None and (address.replicas or address.fsync):
        await _check_settling(wire, f"{name} {version}", fsync=address.fsync)
    await _load(wire, greeting)
    if greeting.entry is not None:
        await _enter(wire, greeting, greeting.entry)
    await _subscribe(wire, channels)
    return Server(name=name, version=version, cluster=cluster, peers=peers)


async def _introduce(wire: Wire, address: Address, client_name: str) -> list[Any]:
    hello: list[Arg] = ["HELLO", 3]
    if address.password is not None or address.user is not None:
        hello += ["AUTH", address.user or "default", address.password or ""]
    hello += ["SETNAME", client_name]
    select: list[list[Arg]] = [["SELECT", address.db]] if address.db else []
    try:
        return await _ask(wire, [hello, *select, ["INFO", "server"]])
    except StoreRefused as refusal:
        if refusal.code == "NOPROTO" or "unknown command" in refusal.reply.lower():
            # A server that does not know HELLO quotes its arguments, and the password is one: they are cut off.
            said = refusal.reply.partition(", with args")[0]
            raise StoreIncompatible(f"store {wire.store} does not know RESP3 ({said}): {_wanted()}") from None
        raise


def _checked_version(store: str, info: bytes) -> tuple[str, str]:
    facts = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    name = "valkey" if "valkey_version" in facts else "redis"
    version = facts.get(f"{name}_version", "0")
    least = VALKEY_MIN if name == "valkey" else REDIS_MIN
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < least:
        raise StoreIncompatible(f"store {store} is {name} {version}: {_wanted()}")
    return name, version


def _wanted() -> str:
    return f"use Valkey {VALKEY_MIN[0]}.{VALKEY_MIN[1]} or Redis {REDIS_MIN[0]}.{REDIS_MIN[1]}, or later"


def _owner(store: str, slots: list[Any], key: str) -> Node:
    slot = key_slot(key)
    if (owner := slot_owner(slots, slot)) is None:
        raise StoreRefused(
            f"no node of the cluster at store {store} serves slot {slot} of key {key}: assign it (CLUSTER ADDSLOTS)",
            code="CLUSTERDOWN",
        )
    return owner


async def _check_settling(wire: Wire, server: str, *, fsync: bool) -> None:
    """Raise a StoreError for a server on which no reply could be settled as the URL asks for it (settling.py)."""
    if not fsync:
        await _ask(wire, [("WAIT", 0, 1)])  # Refused at once where the ACL does not allow it.
        return
    try:
        _, found = await _ask(wire, [("WAITAOF", 0, 0, 1), ("CONFIG", "GET", "append*")])
    except StoreRefused as refusal:
        if "unknown command" not in refusal.reply.lower():
            raise
        said = refusal.reply.partition(", with args")[0]
        raise StoreIncompatible(
            f"store {wire.store} is {server}, which cannot do what fsync=1 needs ({said}): use Valkey, or Redis 7.2 or "
            "later, or take fsync=1 out of its URL"
        ) from None
    appendonly, appendfsync = (found.get(name, b"unknown").decode() for name in (b"appendonly", b"appendfsync"))
    if (appendonly, appendfsync) != ("yes", "always"):
        raise StoreIncompatible(
            f"store {wire.store} has appendonly {appendonly} and appendfsync {appendfsync}, and its URL fsync=1: set "
            "appendonly yes and appendfsync always, there and on its replicas, or take fsync=1 out of the URL"
        )


async def _load(wire: Wire, greeting: Greeting) -> None:
    names = list(greeting.scripts)
    shas = await _ask(wire, [("SCRIPT", "LOAD", greeting.scripts[name]) for name in names])
    for name, sha in zip(names, shas, strict=True):
        if sha != greeting.shas[name]:
            raise StoreIncompatible(
                f"store {wire.store} names script {name} {sha!r}, not {greeting.shas[name]!r}: it does not hash "
                "scripts with SHA-1, use another server"
            )


async def _enter(wire: Wire, greeting: Greeting, entry: Entry) -> None:
    async def run(script: str, keys: Sequence[Arg], args: Sequence[Arg]) -> Any:
        (reply,) = await _ask(wire, [("EVALSHA", greeting.shas[script], len(keys), *keys, *args)])
        return reply

    wire.tail = pack((await entry.enter(run),))[len(ONE_ARGUMENT) :]


async def _subscribe(wire: Wire, channels: Iterable[bytes]) -> None:
    loop = asyncio.get_running_loop()
    forever = float("inf")  # The whole attempt has a time limit, in the link.
    await _answers(wire, [Subscribing(loop.create_future(), "SSUBSCRIBE", channel, forever) for channel in channels])


async def _ask(wire: Wire, commands: Iterable[Iterable[Arg]]) -> list[Any]:
    loop = asyncio.get_running_loop()
    calls = [Call(loop.create_future(), pack(tuple(args)), "greeting", float("inf"), False) for args in commands]
    return await _answers(wire, calls)


async def _answers(wire: Wire, calls: "list[Call] | list[Subscribing]") -> list[Any]:
    if not calls:
        return []
    if wire.gone:
        raise StoreUnavailable(f"store {wire.store} closed the connection", unknown=False)
    wire.send(calls)
    answers = await asyncio.gather(*(call.future for call in calls), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers
