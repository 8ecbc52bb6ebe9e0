"""The key ring: what the cell's `keys` hold, read by every replica and written by few.

    boot:<n>, access:<n>   secrets that sign: tokens of boots (tokens.py) and tokens of keys. n is the `kid`
    api:<id>               an API key, without its secret
    rev                    counts changes, so that a replica reads all of it only when there is something new

The newest secret signs; the others still verify. The first is made by whoever needs one first: HSETNX is what makes two
replicas that start together agree on it. Everything is a cache that is never older than FULL_S while the store answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets as random_secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec

from dhsched.access.api_keys import ApiKey, new_key
from dhsched.errors import BadValue, StoreError
from dhsched.store.keys import Keys
from dhsched.store.link.link import Link
from dhsched.store.raw import hash_of
from dhsched.store.records.server import ServerRecords
from dhsched.store.steps.scripts import join

SecretKind = Literal["boot", "access"]
SECRET_KINDS: tuple[SecretKind, ...] = ("boot", "access")
SECRET_BYTES = 32
KEYS_MAX = 10_000
LOOK_S = 1.0  # Between two looks whether something changed.
FULL_S = 30.0  # Between two readings of all, whatever `rev` says.
REREAD_MIN_S = 0.25  # Between two readings because somebody showed what is not known.
WAITING_MAX = 256
SECRETS_KEPT = 2
_decode = msgspec.json.Decoder(ApiKey).decode


class KeyRing:
    """The cell's secrets and keys, as last read."""

    def __init__(self, link: Link, keys: Keys) -> None:
        self.api_keys: Mapping[str, ApiKey] = {}
        self.changed: list[Callable[[], None]] = []
        """Called after every reading that found something new."""
        self._link = link
        self._cell = keys.cell
        self._key = keys.of("keys")
        self._secrets: dict[str, dict[str, str]] = {kind: {} for kind in SECRET_KINDS}
        self._fields: dict[str, bytes] = {}
        self._read_at = float("-inf")
        self._next: asyncio.Future[None] | None = None
        self._waiting = 0
        self.reread_min_s = REREAD_MIN_S

    # -- what is known

    def secrets(self, kind: SecretKind) -> dict[str, str]:
        """The secrets of this kind by their `kid`."""
        return self._secrets[kind]

    def newest(self, kind: SecretKind) -> str:
        """The `kid` of the secret that signs."""
        return max(self._secrets[kind], key=lambda kid: (len(kid), kid))

    # -- reading

    async def read(self) -> None:
        """Read everything; make the first secrets if there are none."""
        self._read_at = asyncio.get_running_loop().time()
        fields = await self._fetch()
        lacking = [kind for kind in SECRET_KINDS if not any(field.startswith(f"{kind}:") for field in fields)]
        if lacking:
            for kind in lacking:
                await self._link.call("HSETNX", self._key, f"{kind}:1", new_secret())
            fields = await self._fetch()
        if fields == self._fields:
            return
        self._fields = fields
        for kind in SECRET_KINDS:
            self._secrets[kind] = {
                field.partition(":")[2]: value.decode()
                for field, value in fields.items()
                if field.startswith(f"{kind}:") and len(value) >= SECRET_BYTES
            }
        self.api_keys = {field[4:]: _decode(value) for field, value in fields.items() if field.startswith("api:")}
        for call in self.changed:
            call()

    async def reread(self) -> None:
        """Read because something unknown was shown. Callers share a reading that begins after they came, and readings
        are `reread_min_s` apart; past WAITING_MAX of them, one is not waited for."""
        if self._waiting >= WAITING_MAX:
            return
        if self._next is None:
            self._next = asyncio.ensure_future(self._read_later())
            self._next.add_done_callback(_told)
        self._waiting += 1
        try:
            with contextlib.suppress(StoreError):
                await asyncio.shield(self._next)
        finally:
            self._waiting -= 1

    async def _read_later(self) -> None:
        await asyncio.sleep(max(0.0, self._read_at + self.reread_min_s - asyncio.get_running_loop().time()))
        self._next = None  # Who comes from here on needs another one: what they know of may be newer.
        await self.read()

    async def mind(self) -> None:
        """Keep up with changes, until cancelled. Without the store, what was read last goes on counting."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            with contextlib.suppress(StoreError):
                rev = await self._link.call("HGET", self._key, "rev")
                if rev != self._fields.get("rev") or loop.time() - self._read_at >= FULL_S:
                    await self.read()

    async def _fetch(self) -> dict[str, bytes]:
        return hash_of(await self._link.call("HGETALL", self._key))

    # -- writing

    async def create(self, **given: Any) -> tuple[str, ApiKey]:
        """Make a key of what `ApiKey` has; its text, which is not kept, and its record."""
        if len(self.api_keys) >= KEYS_MAX:
            raise BadValue(f"the cell has {len(self.api_keys)} API keys, as many as it may; revoke some first")
        made = new_key()
        now_ms = await ServerRecords(self._link).now_ms()
        record = ApiKey(id=made.id, hash=made.hash, created_at_ms=now_ms, **given)
        await self._change(f"api:{record.id}", msgspec.json.encode(record))
        return made.text, record

    async def revoke(self, key_id: str) -> bool:
        """Forget a key: it mints nothing any more, and what it minted counts no more. Whether it was there."""
        return bool(await self._change(deleted=[f"api:{key_id}"]))

    async def rotate(self, kind: SecretKind, *, drop_old: bool = False) -> tuple[str, list[str]]:
        """A new secret of this kind, which signs from now on; the `kid`s of the new one and of those that were dropped.

        The one before still verifies until the next rotation, unless `drop_old`: then all that it signed is void.
        """
        await self.read()
        while True:
            kids = sorted(self._secrets[kind], key=int)
            number = int(kids[-1]) + 1
            dropped = kids if drop_old else kids[: len(kids) + 1 - SECRETS_KEPT]
            if await self._change(f"{kind}:{number}", new_secret(), deleted=[f"{kind}:{kid}" for kid in dropped]):
                return str(number), dropped
            # Another replica was faster, and what it made has been read.

    async def _change(self, field: str = "", value: str | bytes = "", *, deleted: Iterable[str] = ()) -> int:
        """One script: a replica that sees the new `rev` sees the whole change. How many fields changed."""
        changed: int = await self._link.run("change_keys", [self._cell], [field, value, join(deleted)])
        await self.read()
        return changed


def _told(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()  # Whoever waits is told; if nobody does any more, nobody need be.


def new_secret() -> str:
    return random_secrets.token_hex(SECRET_BYTES)


async def open_ring(link: Link, keys: Keys) -> KeyRing:
    """The cell's key ring, read."""
    ring = KeyRing(link, keys)
    await ring.read()
    return ring
