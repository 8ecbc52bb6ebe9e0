"""Callers: what a request may do and for whom. Roles are names for sets of scopes.

A scope is what an endpoint asks for (`rules.py`). A key has a role; a token has the role's scopes or fewer. Who has
`admin` has all.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

Scope = Literal[
    "lives:read",
    "lives:write",
    "lives:push",
    "workers:register",
    "generations:read",
    "metrics:read",
    "admin",
]
Role = Literal["app", "worker", "room", "metrics", "admin"]

ROLES: dict[Role, frozenset[Scope]] = {
    "app": frozenset({"lives:read", "lives:write", "lives:push"}),
    "worker": frozenset({"workers:register"}),
    "room": frozenset({"generations:read", "lives:push"}),
    "metrics": frozenset({"metrics:read"}),
    "admin": frozenset({"admin"}),
}
"""What a key of each role may do."""
TENANT = "default"
"""The tenant of whoever does not say another one."""
ANY = "*"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a Worker's key may register: names and Pools by pattern (`gpu-*`), and how large. 0 is any capacity."""

    names: str = ANY
    pool: str = ANY
    capacity_max: int = 0

    def refusal(self, *, name: str, pool: str, capacity: int, replaces: str = "") -> str:
        """Why this registration is outside, or nothing."""
        if not fnmatchcase(name, self.names):
            return f"the key registers Workers named {self.names}, not {name}"
        if not fnmatchcase(pool, self.pool):
            return f"the key registers Workers of Pool {self.pool}, not {pool}"
        if self.capacity_max and capacity > self.capacity_max:
            return f"the key registers Workers of capacity {self.capacity_max} at most, not {capacity}"
        # Whom a boot replaces is gone at once: somebody else's Worker must not be ended this way.
        if replaces and not fnmatchcase(replaces.rpartition("#")[0], self.names):
            return f"the key registers Workers named {self.names}, and {replaces}, which it would replace, is none"
        return ""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `key` is the id of the API key, empty where everything is open; `worker` is set for a Worker's boot."""

    key: str
    role: str
    tenant: str
    scopes: frozenset[Scope]
    bounds: Bounds = Bounds()
    worker: str = ""

    @property
    def admin(self) -> bool:
        return "admin" in self.scopes


OPEN = Caller(key="", role="admin", tenant=TENANT, scopes=ROLES["admin"])
"""Everybody, where access is open."""
