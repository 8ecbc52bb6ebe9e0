"""API keys of a run whose deployment asks for them (`--hostile`): the honest Workers', the driver's, the hostile one's.

They are written into the store before the first role starts. The driver knows the secrets of the cell, so it can make
what a hostile Worker or viewer might have got hold of: tokens that have expired, that are not valid yet, or of others.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from dhsched.access.api_keys import ApiKey, new_key
from dhsched.access.api_tokens import sign
from dhsched.access.minting import TTL_MAX_S
from dhsched.access.ring import KeyRing, open_ring
from dhsched.store.keys import Keys
from dhsched.store.link.link import Link

RENEW_S = TTL_MAX_S / 2


class Access:
    """Without `make`, access is open: there are no keys, and requests carry nothing."""

    ring: KeyRing

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.records: dict[str, ApiKey] = {}
        self._tokens: dict[str, tuple[float, str]] = {}

    async def make(self, link: Link, hostile: str, pool: str, capacity: int) -> None:
        """Write the keys. `hostile` is the name of the hostile Worker, whose machine key is for this Pool."""
        await self._add(link, "admin", role="admin", rate_per_s=1e6)
        await self._add(link, "worker", role="worker", names="worker-*")
        await self._add(link, "room", role="room")
        machine: dict[str, Any] = {"names": hostile, "pool": pool, "capacity_max": capacity, "machine": True}
        await self._add(link, "hostile", role="worker", labels="", **machine)
        self.ring = await open_ring(link, Keys("main"))

    async def _add(self, link: Link, who: str, **given: Any) -> None:
        made = new_key()
        record = ApiKey(id=made.id, hash=made.hash, **given)
        field = f"machine:{record.names}" if record.machine else f"api:{record.id}"
        await link.call("HSET", Keys("main").of("keys"), field, msgspec.json.encode(record))
        self.texts[who], self.records[who] = made.text, record

    def environment(self, role: str, who: str) -> dict[str, str]:
        """The variable with the key of a process."""
        return {f"DHSCHED_{role.upper()}_KEY": self.texts[who]} if who in self.texts else {}

    def headers(self, who: str = "admin") -> dict[str, str]:
        """What a request carries: a token of this key, as the key itself would mint it."""
        if who not in self.records:
            return {}
        made_at, token = self._tokens.get(who, (float("-inf"), ""))
        if time.monotonic() - made_at > RENEW_S:
            kid = self.ring.newest("access")
            secret = self.ring.secrets("access")[kid]
            token = sign(self.records[who].caller(), kid=kid, secret=secret, ttl_s=TTL_MAX_S)
            self._tokens[who] = (time.monotonic(), token)
        return {"Authorization": f"Bearer {token}"}
