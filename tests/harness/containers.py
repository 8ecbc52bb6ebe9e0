"""Containers as their files describe them: what a role would make of their words and variables, and the same containers
run as processes of this machine, each at an address of its own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import SystemRandom
from typing import Any

from dhsched.cli.config import kinds
from dhsched.client.credentials import TLS_CA
from dhsched.settings import effective, environment_key, settings_of
from tests.harness.processes import Process
from tests.harness.servers import server_binary
from tests.harness.verbs import every_verb

WRITABLE = ("/tmp", "/var/lib/dhsched", "/data")


@dataclass(frozen=True, slots=True)
class Container:
    """One container: its words after the entry point, its variables, and the folders or files that are mounted."""

    name: str
    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, Path] = field(default_factory=dict)


@cache
def verb(*words: str) -> Any:
    """Return the command of a verb."""
    return dict(every_verb())[words]


def settings_of_container(container: Container) -> Any:
    """Return the settings that the role of this container would run with. Raise an error for an unknown flag or
    variable, and for a value that is not allowed."""
    run, role, *options = container.words
    assert run == "run", container.words
    kind = kinds()[role]
    known = {environment_key(kind, each.name) for each in settings_of(kind)} | {TLS_CA}
    unknown = {name for name in container.environment if name.startswith("DHSCHED")} - known
    assert unknown == set(), f"{container.name}: {role} does not know {unknown}"
    given = dict(verb("run", role).make_context(role, [*options]).params)
    secrets = {environment_key(kind, each.name) for each in settings_of(kind) if each.metadata.get("secret")}
    for name in secrets & container.environment.keys():
        assert container.environment[name].startswith("file:///"), f"{container.name}: {name} is no file"
    own = {each.name for each in settings_of(kind)} | {"config"}
    return effective(
        kind, {name: value for name, value in given.items() if name in own}, container.environment
    ).settings


class Network:
    """Addresses of this machine that nobody else uses, one for each name of a network of containers."""

    def __init__(self, names: Iterable[str]) -> None:
        chance = SystemRandom()
        net = f"127.{chance.randrange(1, 255)}.{chance.randrange(1, 255)}"
        # Longer names first: one may begin with another.
        self.addresses = {
            name: f"{net}.{number}" for number, name in enumerate(sorted(names, key=len, reverse=True), 11)
        }
        self.started: dict[str, Process] = {}

    def placed(self, text: str) -> str:
        """Return a text with the addresses in place of the names."""
        for name, address in self.addresses.items():
            for before in ("://", "@", ","):
                text = text.replace(f"{before}{name}:", f"{before}{address}:")
        return text

    def environment(self, container: Container, folder: Path) -> dict[str, str]:
        return {name: self._inside(value, container, folder) for name, value in container.environment.items()}

    async def start(self, container: Container, folder: Path) -> Process:
        """Start a container's command, with its variables, at the address of its name."""
        os.makedirs(folder, exist_ok=True)
        words = [self._inside(word, container, folder) for word in container.words]
        environment = {**self.environment(container, folder), "XDG_STATE_HOME": str(folder)}
        if words[0] == "valkey-server":
            where = ("--bind", self.addresses[container.name])
            process = await Process.spawn(container.name, str(server_binary("redis")), *words[1:], *where)
        else:
            own = self.addresses[container.name]  # Containers do not share a loopback.
            if words[1] in ("worker", "room"):
                environment.setdefault(f"DHSCHED_{words[1].upper()}_METRICS_HOST", own)
            environment.setdefault("DHSCHED_WORKER_LOCK_FOLDER", str(folder))
            child = (sys.executable, "-m", "dhsched.local.child", "dhsched.cli")
            process = await Process.spawn(container.name, *child, *words, environment=environment)
        self.started[container.name] = process
        return process

    async def stop(self) -> None:
        for process in reversed([*self.started.values()]):
            process.kill()
            await process.stop()

    def _inside(self, text: str, container: Container, folder: Path) -> str:
        """Return a word or a variable as it is here: with the folders and addresses of this machine."""
        text = self.placed(text.replace("0.0.0.0", self.addresses.get(container.name, "0.0.0.0")))
        for path, source in container.mounts.items():
            text = text.replace(path, str(source))
        for path in WRITABLE:
            text = str(folder) if text == path else text
        return text


def copied(files: Mapping[str, Path], folder: Path, mode: int = 0o400) -> None:
    """Copy files into a folder by these names, as a runtime mounts secrets."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in files.items():
        shutil.copy(source, folder / name)
        (folder / name).chmod(mode)
