"""A primary with replicas that confirm what the test says: it answers the commands that settle a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha1

from dhsched.store.link.connect import LinkSettings
from dhsched.store.link.greeting import RunScript
from tests.harness.fake_store import OK, FakeStore, bulk

SCRIPTS = {"place": b"return 1", "settle": b"return 2", "same_home": b"return 3"}
NAMES = {sha1(source).hexdigest().encode(): name for name, source in SCRIPTS.items()}
HOME = b"-HOME h2\r\n"
READONLY = b"-READONLY You can't write against a read only replica.\r\n"
CONFIG = b"%2\r\n+appendonly\r\n+yes\r\n+appendfsync\r\n+always\r\n"
PATIENT = LinkSettings(deadline_s=60, connect_s=60, dead_after_s=60, backoff_first_s=0.01, backoff_max_s=0.05)


class AtHome:
    """The entry of a test's link."""

    async def enter(self, run: RunScript) -> bytes:
        return b"h1"


@dataclass
class Primary:
    """Answers each call with its last argument before the home, and what settles a batch with what settles it.

    `place`, `settle` and `same_home` are replies that come first, each once. Without a reply for WAIT the connection is
    blocked, as a real server blocks it, until `unblock`.
    """

    place: list[bytes] = field(default_factory=list)
    settle: list[bytes] = field(default_factory=list)
    waited: bytes | None = b":1\r\n"
    same_home: list[bytes] = field(default_factory=list)
    tried: bytes = OK
    config: bytes = CONFIG
    """What the greeting is answered, which tries whether it may wait, and reads the configuration for `fsync`."""
    fsync: bool = False
    names: list[str] = field(default_factory=list)
    """Everything that came after the greeting, by name."""

    def __call__(self, command: list[bytes]) -> bytes | None:
        name = NAMES.get(command[1], "?") if command[0] == b"EVALSHA" else command[0].decode()
        if command[:2] == [b"WAIT", b"0"] or command[:3] == [b"WAITAOF", b"0", b"0"]:
            return self.tried
        if name == "CONFIG":
            return self.config
        self.names.append(name)
        if name == "settle":
            return self.settle.pop(0) if self.settle else b":1\r\n"
        if name in ("WAIT", "WAITAOF"):
            return b":1\r\n" if name == "WAIT" and self.fsync else self.waited
        if name == "same_home":
            return None if self.waited is None else self._compared()
        if self.place:
            return self.place.pop(0)
        return bulk(command[-2] if name == "place" else command[-1])

    def unblock(self, fake: FakeStore, waited: bytes = b":1\r\n") -> None:
        """Answer WAIT and what came behind it; later ones are answered at once."""
        fake.say(waited + self._compared())
        self.waited = b":1\r\n"

    def _compared(self) -> bytes:
        return self.same_home.pop(0) if self.same_home else bulk(b"h1")
