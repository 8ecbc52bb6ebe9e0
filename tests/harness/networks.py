"""Three networks of this machine, in namespaces: a viewer's, a room's, and one between them that both reach.

    viewer 10.77.1.2 ---- 10.77.1.1 between 10.77.2.1 ---- 10.77.2.2 room

The one between forwards nothing, so the viewer and the room reach each other only through what runs there. No firewall
is involved: there is no route.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.harness.processes import Process

VIEWER, ROOM = "10.77.1.2", "10.77.2.2"
NEAR_VIEWER, NEAR_ROOM = "10.77.1.1", "10.77.2.1"


class Networks:
    """The namespaces by name."""

    def __init__(self) -> None:
        # A short name: those of interfaces and namespaces are limited.
        self.viewer, self.between, self.room = (f"dh{os.getpid()}{end}" for end in "vbr")

    def make(self) -> None:
        for name in (self.viewer, self.between, self.room):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        self._join(self.viewer, VIEWER, NEAR_VIEWER)
        self._join(self.room, ROOM, NEAR_ROOM)
        # A browser looks for its address by the default route. It leads to a machine that forwards nothing.
        ip("-n", self.viewer, "route", "add", "default", "via", NEAR_VIEWER)
        run(*self.within(self.between), "sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward")

    def _join(self, outer: str, outer_address: str, near_address: str) -> None:
        near = f"to{outer[-1]}"
        ip("link", "add", "out", "netns", outer, "type", "veth", "peer", "name", near, "netns", self.between)
        for namespace, link, address in ((outer, "out", outer_address), (self.between, near, near_address)):
            ip("-n", namespace, "address", "add", f"{address}/24", "dev", link)
            ip("-n", namespace, "link", "set", link, "up")

    def remove(self) -> None:
        for name in (self.viewer, self.between, self.room):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def within(self, namespace: str) -> tuple[str, ...]:
        """The beginning of a command that runs in this namespace, and ends with this process."""
        return ("setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", namespace)

    @contextlib.asynccontextmanager
    async def running(self, namespace: str, *command: str, stop_s: float = 0) -> AsyncIterator[Process]:
        """A command in a namespace, until the end of the block; then it has `stop_s` to end with its input."""
        process = await Process.spawn(command[0], *self.within(namespace), *command)
        try:
            yield process
        finally:
            await process.stop(stop_s)

    def module(self, namespace: str, name: str, *arguments: str) -> contextlib.AbstractAsyncContextManager[Process]:
        return self.running(namespace, sys.executable, "-m", name, *arguments, stop_s=20)

    def wrapped(self, namespace: str, program: str, folder: Path) -> str:
        """A program that is this one in a namespace."""
        script = folder / "wrapped"
        script.write_text(f'#!/bin/sh\nexec ip netns exec {namespace} {program} "$@"\n')
        script.chmod(0o755)
        return str(script)


@contextlib.contextmanager
def networks() -> Iterator[Networks]:
    if shutil.which("ip") is None:
        pytest.skip("NO NAMESPACES: nothing is tested across networks; install iproute2")
    made = Networks()
    try:
        try:
            made.make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"NO NAMESPACES: nothing is tested across networks; it needs root ({error.stderr.strip()})")
        yield made
    finally:
        made.remove()


def ip(*arguments: str) -> None:
    run("ip", *arguments)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
