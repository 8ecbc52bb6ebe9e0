"""One process that this process started: its ready line, its output, signals to it, and its end.

Its standard input is a pipe from this process. Under child.py, which `start` uses, the process ends with that pipe:
when `stop` closes the pipe, and also when this process is gone, by kill -9 for example.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Self

from dhsched.errors import DhschedError
from dhsched.local.pids import cpu_s, memory_bytes

START_S = 60.0  # Without a ready line by then, `until_ready` raises an error.
STOP_S = 5.0  # A process that has not ended this long after its input was closed is killed.
REST_S = 5.0  # Output of a dead process is read for at most this long: its children may keep the pipe open.
LINE_BYTES_MAX = 2**24  # A longer line ends the reading of the output.
READY = re.compile(rb"(?:\w+ listens on (\S+)|ready)\n")
CLI = "dhsched.cli"


class Process:
    """A process, from its start to its end. `url` is the URL in its ready line; empty before that."""

    folder: ClassVar[Path | None] = None
    """Working directory of every process of this class, from which it can import modules; by default this process's."""
    errors_too: ClassVar[bool] = False
    """Whether standard error is read as output; by default it is this process's."""

    def __init__(
        self,
        name: str,
        process: asyncio.subprocess.Process,
        hear: Callable[[bytes], None] | None = None,
        on_end: Callable[[int], None] | None = None,
    ) -> None:
        self.name = name
        self.url = ""
        self.printed: list[str] = []
        self._process = process
        self._hear = hear
        self._on_end = on_end
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())
        self._end = asyncio.create_task(self._watch())

    @classmethod
    async def start(
        cls,
        name: str,
        *arguments: str,
        module: str = CLI,
        environment: Mapping[str, str] | None = None,
        hear: Callable[[bytes], None] | None = None,
        on_end: Callable[[int], None] | None = None,
    ) -> Self:
        """Run a Python module, by default the command `dhsched`. The new process ends with this one."""
        command = (sys.executable, "-m", "dhsched.local.child", module, *arguments)
        return await cls.spawn(name, *command, environment=environment, hear=hear, on_end=on_end)

    @classmethod
    async def spawn(
        cls,
        name: str,
        *command: str,
        environment: Mapping[str, str] | None = None,
        hear: Callable[[bytes], None] | None = None,
        on_end: Callable[[int], None] | None = None,
    ) -> Self:
        """Run any command. `environment` is added to this process's. `hear` is called with each line except the ready
        line; without `hear` the lines go to `printed`. `on_end` is called with the status of a process that ends
        without `stop`."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT if cls.errors_too else None,
            start_new_session=True,  # Ctrl-C must reach only this process, which then ends the others.
            limit=LINE_BYTES_MAX,
            cwd=cls.folder,
            env={**os.environ, **(environment or {})},
        )
        return cls(name, process, hear, on_end)

    # -- its state

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    @property
    def cpu_s(self) -> float:
        return cpu_s(self.pid)

    @property
    def memory_bytes(self) -> int:
        return memory_bytes(self.pid)

    async def until_ready(self, wait_s: float = START_S) -> str:
        """Wait for the ready line and return the URL in it; empty if it has none."""
        try:
            async with asyncio.timeout(wait_s):
                return await asyncio.shield(self._ready)
        except TimeoutError:
            raise DhschedError(f"{self.name} was not ready after {wait_s:g} s") from None

    async def ended(self, wait_s: float = START_S) -> int:
        """Wait until the process has ended by itself, and return its status."""
        try:
            async with asyncio.timeout(wait_s):
                return await asyncio.shield(self._end)
        except TimeoutError:
            raise DhschedError(f"{self.name} has not ended after {wait_s:g} s") from None

    # -- signals, input and end

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL without waiting for the end. A process that is gone already is not an error."""
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def write(self, line: bytes) -> None:
        """Write a line to the process's standard input. Only for a process that does not run under child.py."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")

    async def stop(self, wait_s: float = STOP_S) -> None:
        """End the process, even a frozen one, and wait until it is gone; kill it after `wait_s`."""
        self._on_end = None
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.thaw()
            assert self._process.stdin is not None
            self._process.stdin.close()
            await asyncio.wait((self._end,), timeout=wait_s)
            self.kill()
        await self._end

    # -- its output

    def heard(self, line: bytes) -> None:
        """Handle one line of the process's output."""
        if self._hear is not None:
            self._hear(line)
        else:
            self.printed.append(line.decode())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            found = None if self._ready.done() else READY.fullmatch(line)
            if found is not None:
                self.url = (found[1] or b"").decode()
                self._ready.set_result(self.url)
            else:
                self.heard(line)

    async def _watch(self) -> int:
        status = await self._process.wait()
        await asyncio.wait((self._reading,), timeout=REST_S)
        self._reading.cancel()
        if not self._ready.done():
            self._ready.set_exception(DhschedError(f"{self.name} ended with status {status} before it was ready"))
            self._ready.exception()  # Mark it as retrieved: nobody may be waiting for it.
        if self._on_end is not None:
            self._on_end(status)
        return status
