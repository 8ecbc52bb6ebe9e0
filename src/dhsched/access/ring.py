"""The key ring: the cell's secrets and API keys, in one hash of the store that every replica caches.

    boot:<n>, access:<n>   secrets that sign the tokens of Workers (tokens.py) and of API keys; n is the `kid`
    viewer:<n>             secret seeds of the keys that sign viewers' tokens (viewer_tokens.py)
    api:<id>               record of an API key, with the hash of its text
    machine:<name>         record of the API key of one machine: at most one for each Worker name
    join:<id>              record of a join token that nobody has used yet (machine_keys.py)
    ban:<name>             record of a ban: no Worker of this name may register or go on
    rev                    number of changes: a replica reads the whole hash only when `rev` has changed

The newest secret signs; the others still verify. The first replica makes the first secret, with HSETNX, so that two
replicas that start together agree on it. The cache is never older than FULL_S while the store answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets as random_secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec
import structlog

from dhsched.access.api_keys import ApiKey, new_key
from dhsched.access.machine_records import Ban, JoinToken
from dhsched.errors import BadValue, StoreError, StoreUnavailable
from dhsched.store.keys import Keys
from dhsched.store.link.link import Link
from dhsched.store.raw import hash_of
from dhsched.store.reaching import ReachedCell, first_reached
from dhsched.store.records.server import ServerRecords
from dhsched.store.steps.scripts import join
from dhsched.tasks import cancel

log = structlog.get_logger(__name__)

SecretKind = Literal["boot", "access", "viewer"]
SECRET_KINDS: tuple[SecretKind, ...] = ("boot", "access", "viewer")
SECRET_BYTES = 32
KEYS_MAX = 10_000  # Past this many keys, creating another is refused.
POLL_S = 1.0  # Time between two reads of `rev`.
FULL_S = 30.0  # After this time the whole hash is read, whatever `rev` is.
REREAD_MIN_S = 0.25  # A read for an unknown token or key waits until the last read is this old.
WAITING_MAX = 256  # Past this many callers that wait for a read, a caller goes on without one.
FORGOTTEN_S = 20.0  # A first cell that has forgotten keys is not believed for this long: a copy may come back.
SECRETS_KEPT = 2  # A rotation drops older secrets than these.
DECODERS: Mapping[str, Callable[[bytes], Any]] = {
    kind: msgspec.json.Decoder(record).decode
    for kind, record in (("api", ApiKey), ("machine", ApiKey), ("join", JoinToken), ("ban", Ban))
}


class KeyRing:
    """The cell's secrets and API keys, as of the last read."""

    def __init__(self, link: Link, keys: Keys, *, written_in: str = "", keeps_newest: bool = False) -> None:
        self.api_keys: Mapping[str, ApiKey] = {}
        """Every API key by its id, those of machines too."""
        self.machine_keys: Mapping[str, ApiKey] = {}
        """The API key of each Worker name that has one of its own."""
        self.join_tokens: Mapping[str, JoinToken] = {}
        self.bans: Mapping[str, Ban] = {}
        self.changed: list[Callable[[], None]] = []
        """Functions that are called after every read that found a change."""
        self._link = link
        self._cell = keys.cell
        self._key = keys.of("keys")
        self._secrets: dict[str, dict[str, str]] = {kind: {} for kind in SECRET_KINDS}
        self._fields: dict[str, bytes] = {}
        self._written_in = written_in
        self._keeps_newest = keeps_newest
        self._older_since = 0.0  # When the keys were first found to be older than those here; 0 if they are not.
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

    def refusal_of(self, *, key: str, name: str) -> str:
        """Return why no Worker of this name may go on that registered with this key; empty if one may.

        `key` is empty for a Worker that registered where access is open.
        """
        if name in self.bans:
            return f"the Worker name {name} is banned; an operator can lift the ban: dhsched worker unban {name}"
        if key and key not in self.api_keys:
            return f"the API key {key} that the Worker registered with has been revoked; register with another key"
        return ""

    # -- reading

    async def read(self) -> None:
        """Read the whole ring; make the first secrets if there are none."""
        self._read_at = asyncio.get_running_loop().time()
        fields = await self._fetch()
        lacking = [kind for kind in SECRET_KINDS if not any(field.startswith(f"{kind}:") for field in fields)]
        if self._is_older(fields, lacking):
            return
        if lacking:
            self._refuse_writing()
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
        found = {kind: _decoded(fields, kind, decode) for kind, decode in DECODERS.items()}
        self.machine_keys, self.join_tokens, self.bans = found["machine"], found["join"], found["ban"]
        self.api_keys = {key.id: key for key in (*found["api"].values(), *self.machine_keys.values())}
        for call in self.changed:
            call()

    async def read_or_known(self) -> None:
        """Read the ring, to show it. Where it is one of several cells', what was read last will do."""
        try:
            await self.read()
        except StoreError:
            if not self._keeps_newest:
                raise

    def _is_older(self, fields: Mapping[str, bytes], lacking: Sequence[str]) -> bool:
        """Return whether this read counts as none: the first of several cells has forgotten. Another cell has a copy,
        which is brought back soon (dispatch/cells/copies.py); until then no Worker is sent away because its key seems
        to be revoked. If no copy comes within FORGOTTEN_S, what the cell has counts."""
        if not (self._keeps_newest and self._fields and (lacking or _rev(fields) < _rev(self._fields))):
            self._older_since = 0.0
            return False
        now = asyncio.get_running_loop().time()
        if not self._older_since:
            self._older_since = now
            log.warning("the keys are older than those that were read before; waiting for a copy of another cell")
        if now - self._older_since < FORGOTTEN_S:
            return True
        log.error("no cell has the keys that were read before: the older ones count from now on")
        self._older_since = 0.0
        return False

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

    async def keep_fresh(self) -> None:
        """Read changes until cancelled. While the store does not answer, the last read stays valid."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(POLL_S)
            with contextlib.suppress(StoreError):
                rev = await self._link.call("HGET", self._key, "rev")
                if rev != self._fields.get("rev") or loop.time() - self._read_at >= FULL_S:
                    await self.read()

    async def _fetch(self) -> dict[str, bytes]:
        return hash_of(await self._link.call("HGETALL", self._key))

    # -- cells

    async def move_to(self, link: Link, keys: Keys) -> None:
        """Read and write in the cell where the keys are written, from now on."""
        self._link, self._cell, self._key, self._written_in = link, keys.cell, keys.of("keys"), ""
        await self.read()

    def _refuse_writing(self) -> None:
        if self._written_in:
            raise StoreUnavailable(
                f"keys are written in cell {self._written_in}, which was not reached since this replica started; try "
                "again when it is there",
                unknown=False,
            )

    # -- writing

    async def create(self, **given: Any) -> tuple[str, ApiKey]:
        """Create a key with these fields of `ApiKey`; return its text, which is not stored, and its record."""
        if len(self.api_keys) >= KEYS_MAX:
            raise BadValue(f"the cell has {len(self.api_keys)} API keys, which is the limit; revoke some first")
        made = new_key()
        now_ms = await ServerRecords(self._link).now_ms()
        record = ApiKey(id=made.id, hash=made.hash, created_at_ms=now_ms, **given)
        await self.change(f"api:{record.id}", msgspec.json.encode(record))
        return made.text, record

    async def revoke(self, key_id: str) -> bool:
        """Delete a key, which makes it and its tokens invalid and ends the Workers that registered with it; return
        whether the key existed."""
        await self.read()
        known = self.api_keys.get(key_id)
        if known is None:
            return False
        field = f"machine:{known.names}" if known.machine else f"api:{key_id}"
        # The name may have another machine key by now: that one stays.
        return bool(await self.change(deleted=[field], needed=field, expected=self._fields[field]))

    async def rotate(self, kind: SecretKind, *, drop_old: bool = False) -> tuple[str, list[str]]:
        """Make a new secret of this kind, which signs from now on; return its `kid` and those of the dropped secrets.

        The previous secret still verifies until the next rotation, unless `drop_old`: then its tokens are invalid now.
        """
        await self.read()
        while True:
            kids = sorted(self._secrets[kind], key=int)
            number = int(kids[-1]) + 1
            dropped = kids if drop_old else kids[: len(kids) + 1 - SECRETS_KEPT]
            field, gone = f"{kind}:{number}", [f"{kind}:{kid}" for kid in dropped]
            if await self.change(field, new_secret(), deleted=gone, absent=field):
                return str(number), dropped
            # Another replica has made this number; `change` has read it, so take the next.

    async def change(
        self,
        field: str = "",
        value: str | bytes = "",
        *,
        deleted: Iterable[str] = (),
        needed: str = "",
        expected: bytes = b"",
        absent: str = "",
    ) -> int:
        """Delete fields and write one, in one script, so that a replica that sees the new `rev` sees all of it.

        Return the number of changed fields: 0 if the field `needed` does not exist, or its value is not `expected`
        where this is given, or if the field `absent` exists.
        """
        self._refuse_writing()
        arguments = [field, value, join(deleted), needed, expected, absent]
        (changed,) = await self._link.run("change_keys", [self._cell], arguments, read=self._link.read_counted)
        await self.read()
        if self._older_since:
            raise StoreUnavailable(
                "the cell where keys are written has forgotten some, and no copy has come yet; try again in a moment",
                unknown=True,
            )
        return int(changed)


def _told(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()  # Waiting callers get the error; without any, asyncio must not log it as never retrieved.


def _decoded(fields: Mapping[str, bytes], kind: str, decode: Callable[[bytes], Any]) -> dict[str, Any]:
    """Return the records of one kind by the name in their field."""
    found = ((field.partition(":"), value) for field, value in fields.items())
    return {name: decode(value) for (start, _, name), value in found if start == kind}


def new_secret() -> str:
    return random_secrets.token_hex(SECRET_BYTES)


def _rev(fields: Mapping[str, bytes]) -> int:
    return int(fields.get("rev") or 0)


async def open_ring(link: Link, keys: Keys, *, written_in: str = "", keeps_newest: bool = False) -> KeyRing:
    """Return the cell's key ring after its first read. `written_in` is another cell, of whose ring this is a copy. With
    `keeps_newest`, for one of several cells, a read that is older than the one before counts as none."""
    ring = KeyRing(link, keys, written_in=written_in, keeps_newest=keeps_newest)
    await ring.read()
    return ring


@asynccontextmanager
async def open_ring_over(cells: Sequence[ReachedCell]) -> AsyncIterator[KeyRing]:
    """Yield the key ring of several cells, which is that of the first one. As long as that was never reached, the ring
    is the copy that another cell has, and nothing can be written."""
    home, reached = cells[0], await first_reached(cells)
    written_in = "" if reached is home else home.name
    ring = await _first_ring([reached, *(each for each in cells if each.connected.is_set())], written_in)
    coming = asyncio.create_task(come_home(ring, home), name="key ring, home") if written_in else None
    try:
        yield ring
    finally:
        await cancel(coming)


async def _first_ring(cells: Sequence[ReachedCell], written_in: str) -> KeyRing:
    """Return the ring of the first of these cells that has one; the cell where keys are written makes one."""
    for n, each in enumerate(cells, start=1):
        try:
            return await open_ring(each.store.link, each.store.keys, written_in=written_in, keeps_newest=True)
        except StoreError:
            if n == len(cells):
                raise
    raise AssertionError("no cell is connected")


async def come_home(ring: KeyRing, home: ReachedCell) -> None:
    """Read the keys where they are written, as soon as that cell is connected."""
    await home.connected.wait()
    while True:
        with contextlib.suppress(StoreError):
            await ring.move_to(home.store.link, home.store.keys)
            return
        await asyncio.sleep(POLL_S)
