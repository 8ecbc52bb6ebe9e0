"""A Worker with a valid boot token changes only its own slots and the lives on them, whatever it sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, get_args

import aiohttp
import pytest

from dhsched.access.gate import UNAUTHORIZED
from dhsched.dispatch.moves import cutover
from dhsched.links import messages as m
from dhsched.ownership import outcomes as o
from dhsched.store.link.address import Address
from dhsched.store.raw import read_state
from dhsched.tokens import Boot, Tokens
from tests.harness.fleet import PATIENCE_S, until
from tests.harness.keyed import Keyed, bearer, heard, keyed
from tests.harness.replicas import place, register

VICTIM, OWN = "default/V", "default/E"


@dataclass
class Scene:
    """A victim with the live V, and a hostile Worker with a boot token of its own and the live E."""

    k: Keyed
    victim: str
    evil: str
    token: str
    victim_token: str

    @property
    def store(self) -> Any:
        return self.k.api.context.store

    async def of_others(self) -> dict[str, Any]:
        """Everything in the store that is not the hostile Worker's own."""
        state = await read_state(self.store.link, "main")
        return {
            "lives": {live: record for live, record in state.lives.items() if live != OWN},
            "workers": {worker: record for worker, record in state.workers.items() if worker != self.evil},
            "slots": {worker: slots for worker, slots in state.slots.items() if worker != self.evil},
            "boots": {boot: worker for boot, worker in state.boots.items() if worker != self.evil},
            "listed": state.listed,
        }

    async def says_to_dispatch(self, *said: m.Message) -> list[Any]:
        """Resume on a new link, send these messages and a report; return the answers until the last or the end."""
        async with self.k.link(bearer(self.token), m.Resume(self.token), *said, m.Report(0, 0)) as socket:
            return await answers(socket, m.read_from_dispatch, m.Reported)

    async def says_to_infer(self, *said: m.Message) -> list[Any]:
        """Say hello on a new connection, send these messages; return the answers until those about its own live."""
        async with self.k.infer.ws_connect("/v1/pull", headers=bearer(self.token)) as socket:
            await socket.send_bytes(m.encode([m.Hello(self.token), *said, m.Open(OWN, 1)]))
            return await answers(socket, m.read_infer_says, m.Opened)


async def answers(socket: aiohttp.ClientWebSocketResponse, read: Any, last: type) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(PATIENCE_S):
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY:
                break
            found += read(message.data)
            if any(isinstance(each, last) for each in found):
                break
    return found


@asynccontextmanager
async def scene(server: Address) -> AsyncIterator[Scene]:
    async with keyed(server) as k:
        store = k.api.context.store
        [victim] = await register(store, 1, capacity=4, name="victim")
        await place(store, "V", victim)
        pulled = await store.pull(live=VICTIM, worker=victim, epoch=1, after=0, controller="i1")
        assert isinstance(pulled, o.Pulling)
        await store.append_input(live=VICTIM, kind="text", payload=b"secret", producer="p", n=1)
        shown = await k.role("worker", names="*")
        evil = await k.registered(shown, m.Register("evil", "evil-boot", "gpu", 4))
        await store.report(worker=evil.worker, boot="evil-boot")
        await place(store, "E", evil.worker)
        theirs = Tokens(k.ring).issue(Boot(victim, "boot-gpu-victim-0", "victim0", "gpu", 4))
        yield Scene(k, victim, evil.worker, evil.token, theirs)


def tags(*numbers: int) -> list[str]:
    return [f"{VICTIM}@{number}" for number in numbers]


def to_dispatch(s: Scene) -> list[m.Message]:
    """Every kind of message to Dispatch, about what is the victim's."""
    victims = {"name": "victim0", "pool": "gpu", "capacity": 4}
    return [
        m.Register(boot="boot-gpu-victim-0", **victims),  # type: ignore[arg-type]
        m.Register(boot="new", replaces=s.victim, **victims),  # type: ignore[arg-type]
        m.Register("evil", "evil-boot", "gpu", 4, "", s.victim),
        m.Resume(s.victim_token),
        m.Report(0, 0, busy=tags(0, 1, 2), prepared=tags(0, 1, 2)),
        m.Depart(VICTIM, 1),
        m.Depart(VICTIM, 2, "crashed"),
        m.DeviceList([m.Device("gpu0", 1, True)]),
        m.Drain(0.001),
        m.Exit(),
    ]


def to_infer(s: Scene) -> list[m.Message]:
    """Every kind of message to an Infer-Controller, about what is the victim's."""
    return [
        m.Hello(s.victim_token),
        m.Open(VICTIM, 1),
        m.Open(VICTIM, 2),
        m.Pull(VICTIM, 1, 0),
        m.Pull(VICTIM, 2, 0),
        m.Ack(VICTIM, 1, 1, b"state"),
        m.Ack(VICTIM, 2, 1),
        m.Emit(VICTIM, 1, 1, "word", b"{}"),
        m.Emit(VICTIM, 2, 1, "word", b"{}"),
        m.Log(VICTIM, 1, [m.LogLine("info", b"forged")]),
        m.Log(VICTIM, 2, [m.LogLine("info", b"forged")]),
        m.Log(OWN, 1, [m.LogLine("info", b"own\x1b[2J")]),
        m.Leave(VICTIM, 1),
    ]


async def test_no_message_of_a_hostile_worker_reaches_what_is_not_its_own(server: Address) -> None:
    async with scene(server) as s:
        before = await s.of_others()
        said = [*to_infer(s), *to_dispatch(s)]
        assert {type(each) for each in said} == {*get_args(m.PullSays), *get_args(m.FromWorker)}, "a message is new"
        for each in to_infer(s):
            told = await s.says_to_infer(each)
            assert not any(isinstance(one, m.Items | m.Pulling) for one in told), each
            assert not any(isinstance(one, m.Opened) and one.live != OWN for one in told), each
            assert await s.of_others() == before, each
        await s.k.infer_context.logs.written()
        assert await s.store.records.logs.after(VICTIM, 0, 10) == []
        assert [line.text for line in await s.store.records.logs.after(OWN, 0, 10)] == ["own [2J"]
        for each in to_dispatch(s):
            await s.says_to_dispatch(each)
            assert await s.of_others() == before, each
        state = await read_state(s.store.link, "main")
        assert state.workers[s.evil].gone, "it could end itself"


async def test_a_hostile_worker_has_no_other_endpoint(server: Address) -> None:
    async with scene(server) as s:
        before, shown = await s.of_others(), bearer(s.token)
        path = f"/v1/workers/{s.victim.replace('#', '%23')}"
        status, problem = await s.k.ask("POST", f"{path}/blocked", shown, {"blocked_ms": 1, "tell": True})
        assert (status, problem["code"]) == (403, "FORBIDDEN") and s.evil in problem["detail"]
        for method, at in (("POST", f"{path}/drain"), ("POST", f"{path}/cordon"), ("GET", "/v1/workers")):
            status, problem = await s.k.ask(method, at, shown, {} if method == "POST" else None)
            assert (status, problem["detail"]) == (401, UNAUTHORIZED)
        assert (await s.k.ask("POST", "/v1/tokens", shown, {}))[0] == 401, "a boot token mints nothing"
        assert (await s.k.ask("POST", "/v1/publishing", shown, {"token": s.token}))[0] == 401
        assert await s.of_others() == before


async def test_a_hello_of_another_boot_than_the_header_is_refused_and_counted(server: Address) -> None:
    async with scene(server) as s:
        counted = s.k.infer_context.service.registry.get_sample_value
        same_id = Tokens(s.k.ring).issue(Boot(s.evil, "another-boot", "evil", "gpu", 4))
        for n, other in enumerate((s.victim_token, same_id), start=1):
            async with s.k.infer.ws_connect("/v1/pull", headers=bearer(s.token)) as socket:
                await socket.send_bytes(m.encode([m.Hello(other), m.Pull(VICTIM, 1, 0)]))
                [said] = await answers(socket, m.read_infer_says, m.Problem)
                assert said.code == "UNAUTHORIZED" and "another boot" in said.detail
            assert counted("dhsched_hellos_refused_total") == n
        told = await s.says_to_infer(m.Hello(s.token))
        assert [type(each) for each in told] == [m.Welcome, m.Welcome, m.Opened], "its own hello may be repeated"


async def test_a_connection_of_a_hostile_worker_stays_with_its_first_boot_where_access_is_open(server: Address) -> None:
    async with keyed(server, access="open") as k:
        tokens = Tokens(k.ring)
        boots = [tokens.issue(Boot(f"w{n}#1", f"b{n}", f"w{n}", "gpu", 1)) for n in range(2)]
        async with k.infer.ws_connect("/v1/pull") as socket:
            await socket.send_bytes(m.encode([*map(m.Hello, boots)]))
            said = await answers(socket, m.read_infer_says, m.Problem)
            assert [type(each) for each in said] == [m.Welcome, m.Problem]
        async with k.link({}, *map(m.Resume, boots)) as link:
            told = await heard(link)
            assert isinstance(told, m.Problem) and "belongs to boot w0#1" in told.detail


async def test_a_hostile_worker_keeps_no_move_of_others_from_being_carried_out(
    server: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reports the reserved slot of another Worker as prepared, before that Worker does, and many that are none."""
    monkeypatch.setattr(cutover, "MOVES_EACH", 8)
    async with scene(server) as s:
        store, cutovers = s.store, s.k.api.replica._cutovers
        [target] = await register(store, 1, capacity=4, name="target")
        assert isinstance(await store.set_worker(worker=s.victim, verb="drain"), o.WorkerSet)
        reserved = await store.reserve(live=VICTIM, expected=1, candidates=[target])
        assert isinstance(reserved, o.Reserved)
        tag = f"{VICTIM}@{reserved.number}"
        await s.says_to_dispatch(m.Report(0, 0, prepared=[tag, *(f"default/none@{n}" for n in range(1, 60))]))
        assert len(cutovers._moves) == 8, "one Worker takes only its share"
        await cutovers.round()
        token = Tokens(s.k.ring).issue(Boot(target, "boot-gpu-target-0", "target0", "gpu", 4))
        async with s.k.link(bearer(token), m.Resume(token), m.Report(0, 0, prepared=[tag])) as socket:
            assert isinstance(await heard(socket), m.Reported)
            assert (target, tag) in cutovers._moves
            await cutovers.round()
        state = await read_state(store.link, "main")
        move = state.lives[VICTIM].move
        assert move is not None and move.hold is not None, "the move is under way"


async def test_the_pulls_of_a_hostile_worker_end_with_its_key(server: Address) -> None:
    async with scene(server) as s:
        key = (await Tokens(s.k.ring).read(s.token)).boot.key
        async with s.k.infer.ws_connect("/v1/pull", headers=bearer(s.token)) as socket:
            await socket.send_bytes(m.encode([m.Hello(s.token), m.Pull(OWN, 1, 0)]))
            assert [type(each) for each in await answers(socket, m.read_infer_says, m.Pulling)][-1] is m.Pulling
            pulls = s.k.infer_context.pulls
            await until(lambda: len(pulls) == 1, "the pull")
            assert await s.k.ring.revoke(key)
            *_, said = await answers(socket, m.read_infer_says, m.Problem)
            assert said.code == "UNAUTHORIZED" and "revoked" in said.detail
            assert len(pulls) == 0
            # It goes on sending, and the connection ends all the same.
            await socket.send_bytes(m.encode([m.Pull(OWN, 1, 0)]))
            assert await answers(socket, m.read_infer_says, m.Pulling) == []
        status, _ = await s.k.ask("GET", "/v1/pull", bearer(s.token), at="infer")
        assert status == 401


async def test_a_hostile_worker_that_registers_again_and_again_is_one_worker(server: Address) -> None:
    """Its link is for one boot: it cannot register a second one, nor its own with another name."""
    async with scene(server) as s:
        before = await s.of_others()
        shown = await s.k.role("worker", names="*")
        for second in (m.Register("evil2", "b2", "gpu", 4), m.Register("victim0", "evil-boot", "gpu", 4)):
            async with s.k.link(shown, m.Register("evil", "evil-boot", "gpu", 4), second) as socket:
                said = await answers(socket, m.read_from_dispatch, m.Problem)
                assert isinstance(said[-1], m.Problem) and said[-1].code == "FORBIDDEN", second
        assert await s.of_others() == before
