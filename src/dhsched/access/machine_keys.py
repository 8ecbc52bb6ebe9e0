"""Machine keys: an API key for exactly one Worker name, with that Worker's Pool, capacity and labels in its record.

An operator makes a *join token* for a Worker (`invite`) and takes it to the machine. The machine exchanges the token
for its own key (`join`): once, within the token's lifetime. The exchange is one change of the key ring that needs the
token's field and deletes it, so of two machines with one token exactly one gets a key. A name has at most one machine
key: a second join of the name replaces the first key, which ends the Workers that registered with it.

A *ban* of a name deletes its machine key and its join tokens, and refuses every Worker of the name until it is lifted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import ceil

import msgspec

from dhsched.access.api_keys import ApiKey, id_of, matches, new_key
from dhsched.access.bucket import Bucket
from dhsched.access.machine_records import JOIN_PREFIX, JOIN_TTL_S, NOT_JOINED, Ban, JoinToken
from dhsched.access.ring import KEYS_MAX, KeyRing
from dhsched.errors import BadValue, Banned, TooManyRequests, Unauthorized

JOIN_TOKENS_MAX = 1_000  # Past this many unused join tokens, making another is refused.
BANS_MAX = 10_000  # Past this many banned names, banning another is refused.
GUESSES_PER_S = 5.0  # Requests per second with a token that this replica does not know; past this they are refused.
NOTE = "machine key"


class MachineKeys:
    """Join tokens, machine keys and bans, as one replica handles them."""

    def __init__(
        self,
        ring: KeyRing,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ring = ring
        self._clock = clock
        self._monotonic = monotonic
        self._guesses = Bucket(GUESSES_PER_S, monotonic())

    async def invite(
        self, *, name: str, pool: str, capacity: int, labels: str = "", ttl_s: int = JOIN_TTL_S
    ) -> tuple[str, JoinToken]:
        """Make a join token for this Worker; return its text, which is not stored, and its record.

        It replaces the name's earlier join tokens. Expired tokens of all names are deleted on the way.
        """
        await self._ring.read()
        tokens = self._ring.join_tokens
        over = [token for token in tokens.values() if token.name == name or self._expired(token)]
        if len(tokens) - len(over) >= JOIN_TOKENS_MAX:
            raise BadValue(f"the cell has {len(tokens)} unused join tokens, which is the limit; wait until some expire")
        made = new_key(JOIN_PREFIX)
        expires_at_ms = int((self._clock() + ttl_s) * 1000)
        record = JoinToken(made.id, made.hash, name, pool, capacity, expires_at_ms, labels)
        deleted = [f"join:{token.id}" for token in over]
        field = f"join:{record.id}"
        if not await self._ring.change(field, msgspec.json.encode(record), deleted=deleted, absent=f"ban:{name}"):
            raise Banned(f"the Worker name {name} is banned; lift the ban first: dhsched worker unban {name}")
        return made.text, record

    async def join(self, text: str) -> tuple[str, ApiKey]:
        """Exchange a join token for the machine's key; return the key's text, which is not stored, and its record.

        Raise Unauthorized, with one message, for a token that is unknown, used or expired. A valid token that this
        replica knows is not counted as a guess, so that guesses of others keep no machine out.
        """
        token = self._find(text)
        if token is None:
            wait_s = self._guesses.take(self._monotonic())
            if wait_s > 0:
                raise TooManyRequests(
                    f"this replica checks {GUESSES_PER_S:g} unknown join tokens a second; try again in {wait_s:.1f} s",
                    retry_after_s=max(1, ceil(wait_s)),
                )
            await self._ring.reread()  # Another replica may have just made the token.
            token = self._find(text)
        if token is None:
            raise Unauthorized(NOT_JOINED)
        if len(self._ring.api_keys) >= KEYS_MAX and token.name not in self._ring.machine_keys:
            raise BadValue(f"the cell has {len(self._ring.api_keys)} API keys, which is the limit; revoke some first")
        made = new_key()
        record = ApiKey(
            id=made.id,
            hash=made.hash,
            role="worker",
            names=token.name,
            pool=token.pool,
            capacity_max=token.capacity,
            labels=token.labels,
            machine=True,
            note=NOTE,
            created_at_ms=int(self._clock() * 1000),
        )
        used, banned = f"join:{token.id}", f"ban:{token.name}"
        written = msgspec.json.encode(record)
        if not await self._ring.change(f"machine:{token.name}", written, deleted=[used], needed=used, absent=banned):
            raise Unauthorized(NOT_JOINED)
        return made.text, record

    async def ban(self, name: str, note: str = "") -> Ban:
        """Ban a Worker name and revoke its machine key and join tokens. A second ban only replaces the note."""
        await self._ring.read()
        if len(self._ring.bans) >= BANS_MAX and name not in self._ring.bans:
            raise BadValue(f"the cell has {len(self._ring.bans)} bans, which is the limit; lift some first")
        known = self._ring.bans.get(name)
        now_ms = known.banned_at_ms if known is not None else int(self._clock() * 1000)
        record = Ban(name, now_ms, note)
        tokens = [f"join:{token.id}" for token in self._ring.join_tokens.values() if token.name == name]
        await self._ring.change(f"ban:{name}", msgspec.json.encode(record), deleted=[f"machine:{name}", *tokens])
        return record

    async def unban(self, name: str) -> bool:
        """Lift a ban; return whether there was one."""
        return bool(await self._ring.change(deleted=[f"ban:{name}"], needed=f"ban:{name}"))

    def _find(self, text: str) -> JoinToken | None:
        """Return the record of a token that can be used; None takes as long, whatever is wrong with the text."""
        token = self._ring.join_tokens.get(id_of(text))
        fits = matches(text, token)
        return token if token is not None and fits and not self._expired(token) else None

    def _expired(self, token: JoinToken) -> bool:
        return self._clock() * 1000 >= token.expires_at_ms
