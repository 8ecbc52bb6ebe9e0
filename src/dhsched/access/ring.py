"""The key ring: the cell's secrets and API keys, in one hash of the store that every replica caches.

    boot:<n>, access:<n>   secrets that sign the tokens of Workers (tokens.py) and of API keys; n is the `kid`
    api:<id>               record of an API key, with the hash of its text
    rev                    number of changes: a replica reads the whole hash only when `rev` has changed

The newest secret signs; the others still verify. The first replica makes the first secret, with HSETNX, so that two
replicas that start together agree on it. The cache is never older than FULL_S while the store answers.
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
KEYS_MAX = 10_000  # Past this many keys, creating another is refused.
LOOK_S = 1.0  # Time between two reads of `rev`.
FULL_S = 30.0  # After this time the whole hash is read, whatever `rev` is.
REREAD_MIN_S = 0.25  # A read for an unknown token or key waits until the last read is this old.
WAITING_MAX = 256  # Past this many callers that wait for a read, a caller goes on without one.
SECRETS_KEPT = 2  # A rotation drops older secrets than these.
_decode = msgspec.json.Decoder(ApiKey).decode


class KeyRing:
    """The cell's secrets and API keys, as of the last read."""

    def __init__(self, link: Link, keys: Keys) -> None:
        self.api_keys: Mapping[str, ApiKey] = {}
        self.changed: list[Callable[[], None]] = []
        """Functions that are called after every read that found a change."""
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
        """Return the secrets of this kind by their `kid`."""
        return self._secrets[kind]

    def newest(self, kind: SecretKind) -> str:
        """Return the `kid` of the secret that signs."""
        return max(self._secrets[kind], key=lambda kid: (len(kid), kid))

    # -- reading

    async def read(self) -> None:
        """Read the whole ring; make the first secrets if there are none."""
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
        """Wait for a read that begins after this call: a request has an unknown token or key. Callers share a read, and
        reads are `reread_min_s` apart; past WAITING_MAX waiting callers, return at once."""
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
        self._next = None  # A later caller needs another read: its key may be newer.
        await self.read()

    async def mind(self) -> None:
        """Read changes until cancelled. While the store does not answer, the last read stays valid."""
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
        """Create a key with these fields of `ApiKey`; return its text, which is not stored, and its record."""
        if len(self.api_keys) >= KEYS_MAX:
            raise BadValue(f"the cell has {len(self.api_keys)} API keys, which is the limit; revoke some first")
        made = new_key()
        now_ms = await ServerRecords(self._link).now_ms()
        record = ApiKey(id=made.id, hash=made.hash, created_at_ms=now_ms, **given)
        await self._change(f"api:{record.id}", msgspec.json.encode(record))
        return made.text, record

    async def revoke(self, key_id: str) -> bool:
        """Delete a key, which makes it and its tokens invalid; return whether the key existed."""
        return bool(await self._change(deleted=[f"api:{key_id}"]))

    async def rotate(self, kind: SecretKind, *, drop_old: bool = False) -> tuple[str, list[str]]:
        """Make a new secret of this kind, which signs from now on; return its `kid` and those of the dropped secrets.

        The previous secret still verifies until the next rotation, unless `drop_old`: then its tokens are invalid now.
        """
        await self.read()
        while True:
            kids = sorted(self._secrets[kind], key=int)
            number = int(kids[-1]) + 1
            dropped = kids if drop_old else kids[: len(kids) + 1 - SECRETS_KEPT]
            if await self._change(f"{kind}:{number}", new_secret(), deleted=[f"{kind}:{kid}" for kid in dropped]):
                return str(number), dropped
            # Another replica has made this number; `_change` has read it, so take the next.

    async def _change(self, field: str = "", value: str | bytes = "", *, deleted: Iterable[str] = ()) -> int:
        """Apply a change in one script, so that a replica that sees the new `rev` sees all of it; return the number of
        changed fields."""
        arguments = [field, value, join(deleted)]
        (changed,) = await self._link.run("change_keys", [self._cell], arguments, read=self._link.read_counted)
        await self.read()
        return int(changed)


def _told(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()  # Waiting callers get the error; without any, asyncio must not log it as never retrieved.


def new_secret() -> str:
    return random_secrets.token_hex(SECRET_BYTES)


async def open_ring(link: Link, keys: Keys) -> KeyRing:
    """Return the cell's key ring after its first read."""
    ring = KeyRing(link, keys)
    await ring.read()
    return ring
