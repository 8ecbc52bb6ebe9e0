"""A key for each machine: made with a join token, once; what it registers; what its end ends; banned names."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dhsched import cli
from dhsched.access import machine_keys
from dhsched.access.machine_keys import MachineKeys
from dhsched.access.machine_records import NOT_JOINED
from dhsched.dispatch.loops import running
from dhsched.errors import BadToken, BadValue, DhschedError, KeyRefused, Refused
from dhsched.links.messages import Problem, Register, Resume
from dhsched.store.link.address import Address
from dhsched.tokens import Boot, Publishing, Tokens
from dhsched.types import Generation, name_of
from dhsched.worker import dispatch_link
from tests.harness.fleet import PATIENCE_S, Record, until, until_so
from tests.harness.keyed import Keyed, bearer, heard, keyed

GPU_1 = {"name": "gpu-1", "pool": "gpu", "capacity": 2, "labels": ["zone=a"]}


async def invited(k: Keyed, admin: dict[str, str], **changed: Any) -> str:
    status, made = await k.ask("POST", "/v1/join-tokens", admin, {**GPU_1, **changed})
    assert status == 201, made
    return str(made["token"])


async def joined(k: Keyed, admin: dict[str, str], **changed: Any) -> str:
    status, made = await k.ask("POST", "/v1/join", None, {"token": await invited(k, admin, **changed)})
    assert status == 201, made
    return str(made["key"])


async def join(k: Keyed, token: str) -> tuple[int, Any]:
    return await k.ask("POST", "/v1/join", None, {"token": token})


# -- join tokens


async def test_a_machine_joins_once_and_has_a_key_of_its_own(server: Address) -> None:
    async with keyed(server) as k:
        admin = await k.role("admin")
        token = await invited(k, admin)
        status, made = await join(k, token)
        assert status == 201
        bounds = {"role": "worker", "names": "gpu-1", "pool": "gpu", "capacity_max": 2, "labels": ["zone=a"]}
        assert made["record"] | bounds | {"machine": True} == made["record"]
        assert (await join(k, token))[0] == 401, "it was for one use"
        store = k.api.context.store
        kept = b" ".join(await store.link.call("HVALS", store.keys.of("keys")))
        for secret in (token, made["key"]):
            assert secret.split("_", 2)[2].encode() not in kept, "only a hash is kept"
        shown = bearer(await k.token(made["key"]))
        registered = await k.registered(shown, Register("gpu-1", "b1", "gpu", 2, "zone=a"))
        assert registered.worker == "gpu-1#1"
        assert (await k.ask("GET", "/v1/lives", shown))[0] == 403, "it registers its Worker and does nothing else"


async def test_of_two_machines_with_one_token_exactly_one_gets_a_key(
    server: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_keys, "GUESSES_PER_S", 1_000)
    async with keyed(server) as one, keyed(server, 2) as two:
        admin = await one.role("admin")
        for _ in range(10):
            token = await invited(one, admin)
            await two.ring.read()  # So that both find the token, and the store alone decides.
            answers = await asyncio.gather(*(join(k, token) for k in (one, two, one, two)))
            assert sorted(status for status, _ in answers) == [201, 401, 401, 401]
            [key] = [answer["key"] for status, answer in answers if status == 201]
            await one.ring.read()
            assert [record.id for record in one.ring.machine_keys.values()] == [key.split("_")[1]]


async def test_unknown_used_and_expired_join_tokens_are_answered_alike(
    server: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_keys, "GUESSES_PER_S", 1_000)
    async with keyed(server) as k:
        admin = await k.role("admin")
        used = await invited(k, admin)
        assert (await join(k, used))[0] == 201
        replaced = await invited(k, admin, name="gpu-3")
        current = await invited(k, admin, name="gpu-3")
        an_hour_ago = MachineKeys(k.ring, clock=lambda: time.time() - 3600)
        expired, record = await an_hour_ago.invite(name="gpu-2", pool="gpu", capacity=1)
        assert record.id in k.ring.join_tokens, "nobody has deleted it yet"
        wrong = [used, expired, replaced, current[:-1], current + "x", f"dhj_{'0' * 12}_x", "", "dhj_", "x" * 128]
        answers = [await join(k, token) for token in wrong]
        status, problem = answers[0]
        assert (status, problem["code"], problem["detail"]) == (401, "UNAUTHORIZED", NOT_JOINED)
        assert answers == [answers[0]] * len(wrong)
        assert (await join(k, "x" * 129))[0] == 400
        assert (await join(k, current))[0] == 201


async def test_guessed_join_tokens_are_limited_and_keep_no_machine_out(
    server: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_keys, "GUESSES_PER_S", 0.001)  # One, whatever the machine's speed.
    async with keyed(server) as k:
        admin = await k.role("admin")
        good = await invited(k, admin)
        answers = await asyncio.gather(*(join(k, f"dhj_{'0' * 12}_{n}") for n in range(40)))
        statuses = [status for status, _ in answers]
        assert sorted(statuses) == [401, *[429] * 39]
        assert (await join(k, good))[0] == 201


async def test_join_tokens_are_bounded_in_number_and_time(server: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_keys, "JOIN_TOKENS_MAX", 2)
    async with keyed(server) as k:
        admin, now = await k.role("admin"), 1_000_000.0
        tokens = MachineKeys(k.ring, clock=lambda: now)
        for name in ("a", "b", "b"):
            await tokens.invite(name=name, pool="gpu", capacity=1)
        assert sorted(token.name for token in k.ring.join_tokens.values()) == ["a", "b"], "one for each name"
        with pytest.raises(BadValue, match="2 unused join tokens"):
            await tokens.invite(name="c", pool="gpu", capacity=1)
        now += 601
        await tokens.invite(name="c", pool="gpu", capacity=1)
        assert [token.name for token in k.ring.join_tokens.values()] == ["c"], "the expired ones are deleted"
        for ttl_s in (0, 86_401):
            assert (await k.ask("POST", "/v1/join-tokens", admin, {**GPU_1, "ttl_s": ttl_s}))[0] == 400
        for wrong in ({"name": "a/b"}, {"name": "gpu-*"}, {"capacity": 0}, {"labels": ["a,b"]}, {"labels": ["a b"]}):
            assert (await k.ask("POST", "/v1/join-tokens", admin, {**GPU_1, **wrong}))[0] == 400, wrong


async def test_only_an_admin_invites_and_bans(server: Address) -> None:
    async with keyed(server) as k:
        for role in ("app", "worker", "room", "metrics"):
            shown = await k.role(role)
            assert (await k.ask("POST", "/v1/join-tokens", shown, GPU_1))[0] == 403
            assert (await k.ask("PUT", "/v1/bans/gpu-1", shown, {}))[0] == 403
            assert (await k.ask("DELETE", "/v1/bans/gpu-1", shown))[0] == 403
            assert (await k.ask("GET", "/v1/bans", shown))[0] == 403


# -- what a key registers


OTHERWISE: list[tuple[dict[str, Any], str]] = [
    ({"name": "gpu-2"}, "named gpu-1, not gpu-2"),
    ({"pool": "other"}, "of Pool gpu, not other"),
    ({"capacity": 1}, "with capacity 2, not 1"),
    ({"capacity": 3}, "with capacity 2, not 3"),
    ({"labels": "zone=b"}, "with label zone=a, not with label zone=b"),
    ({"labels": "zone=a,big"}, "not with labels big, zone=a"),
    ({"replaces": "gpu-2#1"}, "only boots of its own name"),
]


async def test_a_machine_key_registers_its_own_worker_and_no_other(server: Address) -> None:
    async with keyed(server) as k:
        shown = bearer(await k.token(await joined(k, await k.role("admin"))))
        said: dict[str, Any] = {"name": "gpu-1", "boot": "b1", "pool": "gpu", "capacity": 2, "labels": "zone=a"}
        for changed, why in OTHERWISE:
            assert why in await k.refusal(shown, Register(**{**said, **changed}))
        assert (await k.api.context.records.fleet.snapshot()).workers == ()
        silent = await k.registered(shown, Register("", "b1", "", 0))
        found = await k.api.context.records.workers.get(silent.worker)
        assert found is not None
        assert (found[0].name, found[0].pool, found[0].capacity, found[0].labels) == ("gpu-1", "gpu", 2, "zone=a")
        boot = (await Tokens(k.ring).read(silent.token)).boot
        assert (boot.name, boot.pool, boot.capacity) == ("gpu-1", "gpu", 2)


async def test_a_name_with_a_machine_key_is_not_for_a_fleet_key(server: Address) -> None:
    async with keyed(server) as k:
        admin, fleet = await k.role("admin"), await k.role("worker", names="gpu-*", pool="gpu")
        await joined(k, admin)
        assert "a machine with a key of its own" in await k.refusal(fleet, Register("gpu-1", "b1", "gpu", 2))
        assert (await k.registered(fleet, Register("gpu-2", "b2", "gpu", 2))).worker == "gpu-2#1"


async def test_a_fleet_key_says_names_and_labels_and_replaces_only_its_own_name(server: Address) -> None:
    async with keyed(server) as k:
        admin = await k.role("admin")
        status, problem = await k.ask("POST", "/v1/keys", admin, {"role": "worker"})
        assert status == 422 and "needs names" in problem["detail"], "no key of role worker is for any name by default"
        body = {"role": "worker", "names": "gpu-*", "labels": ["zone=*"]}
        bounded = bearer(await k.token((await k.ask("POST", "/v1/keys", admin, body))[1]["key"]))
        none = bearer(await k.token((await k.ask("POST", "/v1/keys", admin, {**body, "labels": []}))[1]["key"]))
        labelled = Register("gpu-1", "b1", "gpu", 1, "zone=a")
        assert "with no labels, not with label zone=a" in await k.refusal(none, labelled)
        assert "not with label big" in await k.refusal(bounded, Register("gpu-1", "b1", "gpu", 1, "zone=a,big"))
        first = await k.registered(bounded, labelled)
        other = Register("gpu-2", "b2", "gpu", 1, "", first.worker)
        assert "only boots of its own name" in await k.refusal(bounded, other)
        found = await k.api.context.records.workers.get(first.worker)
        assert found is not None and not found[0].gone
        await k.registered(bounded, Register("gpu-1", "b3", "gpu", 1, "", first.worker))
        assert await k.api.context.records.workers.get(first.worker) is None, "its own earlier boot is gone"


# -- the end of a key


@asynccontextmanager
async def two_replicas(server: Address) -> AsyncIterator[tuple[Keyed, Keyed]]:
    """Two Dispatch replicas with their loops, and two Infer-Controllers."""
    async with keyed(server) as one, keyed(server, 2) as two:
        loops = [running(k.api.replica.loops(), rng=k.api.context.rng) for k in (one, two)]
        async with loops[0], loops[1]:
            await one.announce()
            await two.announce()
            yield one, two


@pytest.mark.parametrize("how", ["revoked", "banned", "joined again"])
async def test_the_end_of_a_machine_key_ends_its_worker_at_every_replica(
    server: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The Worker is linked to one replica, and its key ends at the other one: its live goes on elsewhere."""
    monkeypatch.setattr(dispatch_link, "REFUSED_MAX_S", 0.5)
    first, second = Record(), Record()
    async with two_replicas(server) as (one, two):
        admin, app = await one.role("admin"), await one.role("app")
        await one.configure(admin)
        key = await joined(one, admin)
        async with one.worker(tmp_path, first, key=key) as task:
            assert (await one.ask("POST", "/v1/lives?wait_s=20", app, {"digital_id": "anna", "live_id": "L"}))[0] == 201
            assert (await one.ask("POST", "/v1/lives/L/text", app, {"text": "hello"}, at="infer"))[0] == 200
            await until(lambda: [each.text for each in first.consumed] == ["hello"], "the item")
            worker = first.consumed[0].worker
            shown = bearer(Tokens(one.ring).issue(Boot(worker, "b", "gpu-1", "gpu", 2, key.split("_")[1])))
            publishing = Publishing("default/L", Generation(worker, 1), key.split("_")[1])
            publish, room = Tokens(one.ring).issue_publish(publishing), await one.role("room")
            assert (await two.ask("POST", "/v1/publishing", room, {"token": publish}))[0] == 200
            match how:
                case "revoked":
                    assert (await two.ask("DELETE", f"/v1/keys/{key.split('_')[1]}", admin))[0] == 204
                case "banned":
                    assert (await two.ask("PUT", "/v1/bans/gpu-1", admin, {}))[1]["workers"] == [worker]
                case _:
                    await joined(two, admin)
            with pytest.raises(KeyRefused):
                await asyncio.wait_for(task, PATIENCE_S)
        other = await one.key("worker", names="other-*")
        async with two.worker(tmp_path, second, key=other, name="other-1"):
            await until(lambda: second.opened, "the live on another Worker")
            assert (await one.ask("POST", "/v1/lives/L/text", app, {"text": "again"}, at="infer"))[0] == 200
            await until(lambda: "again" in [each.text for each in second.consumed], "the next item")
            assert [each.text for each in first.consumed] == ["hello"]
        for k in (one, two):
            assert (await k.ask("GET", "/v1/pull", shown, at="infer"))[0] == 401
            assert (await k.ask("GET", "/v1/workers/link", shown))[0] == 401
            path = f"/v1/workers/{worker.replace('#', '%23')}/blocked"
            assert (await k.ask("POST", path, shown, {"blocked_ms": 1}))[0] == 401
            assert (await k.ask("POST", "/v1/publishing", room, {"token": publish}))[0] == 401, "rooms cut it off"
        events = [each.event for each in await one.api.context.records.events.last(100)]
        gone = [event for event in events if event.kind == "worker_gone" and event.worker == worker]
        assert len(gone) == 1


async def test_revoking_an_earlier_machine_key_leaves_the_present_one(
    server: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine joins again at one replica while the other one, which knows the earlier key, revokes that."""
    async with keyed(server) as one, keyed(server, 2) as two:
        admin = await one.role("admin")
        earlier = (await joined(one, admin)).split("_")[1]
        await two.ring.read()
        present = await joined(one, admin)

        async def nothing_new() -> None:
            pass

        with monkeypatch.context() as late:
            late.setattr(two.ring, "read", nothing_new)
            assert not await two.ring.revoke(earlier)
        assert (await one.ask("POST", "/v1/tokens", bearer(present), {}))[0] == 200


async def test_revoking_a_fleet_key_ends_all_workers_that_it_registered_and_no_other(server: Address) -> None:
    async with keyed(server) as one, keyed(server, 2) as two:
        admin, (mine, theirs) = await one.role("admin"), [await one.key("worker", names="gpu-*") for _ in range(2)]
        await two.ring.read()
        async with (
            one.link(bearer(await one.token(mine)), Register("gpu-1", "b1", "gpu", 1)) as first,
            two.link(bearer(await two.token(mine)), Register("gpu-2", "b2", "gpu", 1)) as second,
            two.link(bearer(await two.token(theirs)), Register("gpu-3", "b3", "gpu", 1)) as third,
        ):
            for socket in (first, second, third):
                await heard(socket)
            assert (await one.ask("DELETE", f"/v1/keys/{mine.split('_')[1]}", admin))[0] == 204
            for socket in (first, second):
                said = await heard(socket)
                assert isinstance(said, Problem) and said.code == "UNAUTHORIZED" and "revoked" in said.detail

            async def left() -> list[str]:
                return [row.worker for row in (await one.api.context.records.fleet.snapshot()).workers if not row.gone]

            rest = await until_so(left, lambda workers: len(workers) == 1, "the end of two Workers")
            assert name_of(rest[0]) == "gpu-3"
            assert not third.closed


# -- bans


async def test_a_banned_name_stays_out_with_any_key_until_the_ban_is_lifted(server: Address) -> None:
    async with keyed(server) as k:
        admin, fleet = await k.role("admin"), await k.role("worker", names="gpu-*")
        key, waiting = await joined(k, admin), await invited(k, admin)
        shown = bearer(await k.token(key))
        registered = await k.registered(fleet, Register("gpu-2", "b2", "gpu", 1))
        status, ban = await k.ask("PUT", "/v1/bans/gpu-1", admin, {"note": "stolen"})
        assert (status, ban["name"], ban["note"], ban["workers"]) == (200, "gpu-1", "stolen", [])
        assert (await k.ask("POST", "/v1/tokens", bearer(key), {}))[0] == 401, "its machine key is revoked"
        assert (await k.ask("GET", "/v1/workers/link", shown))[0] == 401
        assert (await join(k, waiting))[0] == 401, "so are its join tokens"
        status, problem = await k.ask("POST", "/v1/join-tokens", admin, GPU_1)
        assert status == 409 and "is banned" in problem["detail"]
        assert (await k.ask("PUT", "/v1/bans/gpu-2", admin, {}))[1]["workers"] == [registered.worker]
        assert "is banned" in await k.refusal(fleet, Register("gpu-1", "b1", "gpu", 1))
        assert "is banned" in await k.refusal(admin, Register("gpu-1", "b1", "gpu", 1))
    async with keyed(server) as k:  # A replica that has just started.
        admin, fleet = await k.role("admin"), await k.role("worker", names="gpu-*")
        assert "is banned" in await k.refusal(fleet, Register("gpu-2", "b4", "gpu", 1))
        with pytest.raises(BadToken, match="is banned"):
            await Tokens(k.ring).read(registered.token)
        names = [ban["name"] for ban in (await k.ask("GET", "/v1/bans", admin))[1]["bans"]]
        assert names == ["gpu-1", "gpu-2"]
        for name in names:
            assert (await k.ask("DELETE", f"/v1/bans/{name}", admin))[0] == 204
            assert (await k.ask("DELETE", f"/v1/bans/{name}", admin))[0] == 404
        assert (await k.ask("POST", "/v1/tokens", bearer(key), {}))[0] == 401, "the old key does not come back"
        assert (await join(k, waiting))[0] == 401
        again = bearer(await k.token(await joined(k, admin)))
        assert (await k.registered(again, Register("gpu-1", "b5", "gpu", 2))).worker.startswith("gpu-1#")


async def test_a_ban_holds_where_access_is_open_too(server: Address) -> None:
    async with keyed(server, access="open") as k:
        async with k.link({}, Register("gpu-1", "b1", "gpu", 1)) as socket:
            registered: Any = await heard(socket)
            assert (await k.ask("PUT", "/v1/bans/gpu-1", None, {}))[1]["workers"] == [registered.worker]
            said = await heard(socket)
            assert isinstance(said, Problem) and said.code == "UNAUTHORIZED"
        assert "is banned" in await k.refusal({}, Register("gpu-1", "b2", "gpu", 1))
        assert "is banned" in await k.refusal({}, Resume(registered.token))
        assert (await k.registered({}, Register("gpu-2", "b3", "gpu", 1))).worker


# -- on the command line


async def test_a_machine_joins_and_is_banned_from_the_command_line(
    server: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with keyed(server) as k:
        url = str(k.api.client.make_url("/")).rstrip("/")
        as_admin = {"DHSCHED_URL": url, "DHSCHED_KEY": await k.key("admin")}
        as_machine = {"DHSCHED_URL": url}

        async def dhsched(env: dict[str, str], *words: str, given: str = "") -> tuple[str, str]:
            result = await asyncio.to_thread(CliRunner().invoke, cli.app, [*words], env=env, input=given)
            if isinstance(result.exception, DhschedError):
                raise result.exception
            assert result.exit_code == 0, (words, result.output, result.exception)
            return result.stdout.strip(), result.stderr

        of_gpu_1 = ("gpu-1", "--pool", "gpu", "--capacity", "2", "--label", "zone=a")
        token, hint = await dhsched(as_admin, "worker", "invite", *of_gpu_1, "--ttl", "2h")
        assert token.startswith("dhj_") and "dhsched worker join" in hint
        file = tmp_path / "key"
        with pytest.raises(DhschedError, match="cannot write the key"):
            await dhsched(as_machine, "worker", "join", token, "--key-file", str(tmp_path / ("x" * 250)))
        target = tmp_path / "elsewhere"
        target.write_text("theirs")
        file.symlink_to(target)
        said, _ = await dhsched(as_machine, "worker", "join", "-", "--key-file", str(file), given=token + "\n")
        assert said == f"dhsched run worker --name gpu-1 --pool gpu --capacity 2 --labels zone=a --key-file {file}"
        assert target.read_text() == "theirs" and not file.is_symlink(), "no link is followed"
        assert file.stat().st_mode & 0o777 == 0o600 and os.listdir(tmp_path).count("key") == 1
        assert [name for name in os.listdir(tmp_path) if name.startswith(".key")] == []
        shown = bearer(await k.token(file.read_text().strip()))
        await k.registered(shown, Register("gpu-1", "b1", "gpu", 2))
        with pytest.raises(DhschedError, match="unknown, used or expired"):
            await dhsched(as_machine, "worker", "join", token, "--key-file", str(tmp_path / "other"))
        assert not (tmp_path / "other").exists()
        assert "gpu-1" in (await dhsched(as_admin, "worker", "ban", "gpu-1", "--note", "stolen"))[0]
        assert "banned names: gpu-1" in (await dhsched(as_admin, "worker", "ls"))[1]
        assert "Worker names gpu-1" in (await dhsched(as_admin, "doctor"))[0]
        await dhsched(as_admin, "worker", "unban", "gpu-1")
        with pytest.raises(Refused, match="is not banned"):
            await dhsched(as_admin, "worker", "unban", "gpu-1")
        with pytest.raises(BadValue, match="--ttl"):
            await dhsched(as_admin, "worker", "invite", *of_gpu_1, "--ttl", "soon")
        with pytest.raises(Refused, match="--names 'gpu-\\*'"):
            await dhsched(as_admin, "key", "create", "--role", "worker")
        _, allowed = await dhsched(as_admin, "key", "create", "--role", "worker", "--names", "gpu-*")
        assert "it registers Workers named gpu-*, of any Pool, of any capacity, with no labels" in allowed
