"""A Sentinel that says what the test wants: which server is the primary, and `+switch-master` on demand."""

from __future__ import annotations

from typing import Self

from tests.harness.fake_store import OK, FakeStore, bulk

CHANNEL = b"+switch-master"


class FakeSentinel(FakeStore):
    """Names `primary` (host and port) with `epoch` for the service `main`; with None it says nothing at all."""

    def __init__(self, primary: tuple[str, int] | None = None, epoch: int = 0) -> None:
        super().__init__(self._say)
        self.primary = primary
        self.epoch = epoch
        self.subscribed = 0

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    def name(self, port: int, epoch: int) -> None:
        self.primary, self.epoch = ("127.0.0.1", port), epoch

    def switched(self, service: bytes = b"main") -> None:
        """Publish that the primary was replaced, on every connection."""
        message = service + b" 127.0.0.1 1 127.0.0.1 2"
        for writer in self.connections:
            writer.write(array(b"message", CHANNEL, message))

    def _say(self, command: list[bytes]) -> bytes | None:
        if self.primary is None:
            return None
        if command[0] == b"AUTH":
            return OK
        if command == [b"SUBSCRIBE", CHANNEL]:
            self.subscribed += 1
            return b"*3\r\n" + bulk(b"subscribe") + bulk(CHANNEL) + b":1\r\n"
        if command != [b"SENTINEL", b"MASTER", b"main"]:
            return b"-ERR No such master with that name\r\n"
        host, port = self.primary
        facts = {b"name": b"main", b"ip": host.encode(), b"port": b"%d" % port, b"config-epoch": b"%d" % self.epoch}
        return array(*(word for pair in facts.items() for word in pair))


def array(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(map(bulk, words))
