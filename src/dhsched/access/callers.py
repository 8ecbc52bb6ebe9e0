"""Callers: who makes a request, for which tenant, with which scopes. A role is a named set of scopes.

An endpoint requires a scope (`rules.py`). A key has a role; a token has the role's scopes or fewer. The scope `admin`
includes all others.
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
"""The scopes of each role."""
TENANT = "default"
"""The tenant of a key that was created without one."""
ANY = "*"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The Workers that a key may register: patterns of names and Pools (`gpu-*`), and a capacity; 0 is any."""

    names: str = ANY
    pool: str = ANY
    capacity_max: int = 0

    def refusal(self, *, name: str, pool: str, capacity: int, replaces: str = "") -> str:
        """Return why the key may not register this Worker, or an empty string if it may."""
        if not fnmatchcase(name, self.names):
            return f"the key registers Workers named {self.names}, not {name}"
        if not fnmatchcase(pool, self.pool):
            return f"the key registers Workers of Pool {self.pool}, not {pool}"
        if self.capacity_max and capacity > self.capacity_max:
            return f"the key registers Workers of capacity {self.capacity_max} at most, not {capacity}"
        # Registering makes the replaced Worker gone at once: a key must not end the Workers of another key this way.
        if replaces and not fnmatchcase(replaces.rpartition("#")[0], self.names):
            return f"the key registers Workers named {self.names}, and {replaces}, which it would replace, is none"
        return ""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request. `key` is the id of its API key, empty where access is open; `worker` is set for a boot
    token."""

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
"""The caller of every request where access is open."""
