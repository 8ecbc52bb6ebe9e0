"""API keys of a local deployment: an admin key for this user's commands, others for its Workers and rooms."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from dhsched.access.development import NOTE
from dhsched.access.key_file import KeyFile
from dhsched.access.ring import open_ring
from dhsched.store.steps.redis import RedisStore


class Keys(NamedTuple):
    """API keys of a deployment. Without an admin key, access to the deployment is open."""

    admin: str = ""
    workers: Mapping[str, str] = {}  # By Pool.
    room: str = ""

    def environment(self, role: str, pool: str = "") -> dict[str, str]:
        """Return the variable with the key of a process of this role; other users could read its arguments."""
        key = {"worker": self.workers.get(pool), "room": self.room}.get(role)
        return {f"DHSCHED_{role.upper()}_KEY": key} if key else {}


OPEN = Keys()


@asynccontextmanager
async def development_keys(
    store_url: str, pools: Iterable[str], *, worker_names: str, cell: str = "main"
) -> AsyncIterator[Keys]:
    """Make new keys in `cell`, the first one where there are several. The admin key is in this user's key file until
    block ends; the replicas find it there and add their addresses. Keys of an earlier run on the same data are revoked:
    nobody has them."""
    async with await RedisStore.open(store_url, cell=cell) as store:
        ring = await open_ring(store.link, store.keys)
        for old in [key.id for key in ring.api_keys.values() if key.note == NOTE]:
            await ring.revoke(old)
        admin, _ = await ring.create(role="admin", note=NOTE)
        workers = {
            pool: (await ring.create(role="worker", names=worker_names, pool=pool, note=NOTE))[0] for pool in pools
        }
        room, _ = await ring.create(role="room", note=NOTE)
    KeyFile().keep(admin)
    try:
        yield Keys(admin, workers, room)
    finally:
        KeyFile().forget(admin)
