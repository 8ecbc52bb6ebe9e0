"""Callers: who makes a request, for which tenant, with which scopes. A role is a named set of scopes.

An endpoint requires a scope (`rules.py`). A key has a role; a token has the role's scopes or fewer. The scope `admin`
includes all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from dhsched.types import labels_of, name_of

Scope = Literal[
    "lives:read",
    "lives:write",
    "lives:push",
    "workers:register",
    "generations:read",
    "metrics:read",
    "fleet:read",
    "fleet:write",
    "admin",
]
Role = Literal["app", "worker", "room", "metrics", "reader", "operator", "admin"]

ROLES: dict[Role, frozenset[Scope]] = {
    "app": frozenset({"lives:read", "lives:write", "lives:push"}),
    "worker": frozenset({"workers:register"}),
    "room": frozenset({"generations:read", "lives:push"}),
    "metrics": frozenset({"metrics:read"}),
    "reader": frozenset({"fleet:read", "metrics:read"}),
    "operator": frozenset({"fleet:read", "fleet:write", "metrics:read"}),
    "admin": frozenset({"admin"}),
}
"""The scopes of each role."""
TENANT = "default"
"""The tenant of a key that was created without one."""
ANY = "*"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The Workers that a key may register: patterns of names, Pools and labels (`gpu-*`), and a capacity; 0 is any.

    The labels' patterns are separated by commas. The bounds of a machine key (`machine`) are the one Worker itself: its
    name, Pool, capacity and labels.
    """

    names: str = ANY
    pool: str = ANY
    capacity_max: int = 0
    labels: str = ANY
    machine: bool = False

    def refusal(self, *, name: str, pool: str, capacity: int, labels: str = "", replaces: str = "") -> str:
        """Return why the key may not register this Worker, or an empty string if it may."""
        if not fnmatchcase(name, self.names):
            return f"the key registers Workers named {self.names}, not {name}"
        if not fnmatchcase(pool, self.pool):
            return f"the key registers Workers of Pool {self.pool}, not {pool}"
        if self.machine and capacity != self.capacity_max:
            return f"the key is for Worker {self.names} with capacity {self.capacity_max}, not {capacity}"
        if self.capacity_max and capacity > self.capacity_max:
            return f"the key registers Workers of capacity {self.capacity_max} at most, not {capacity}"
        given, allowed = labels_of(labels), labels_of(self.labels)
        if self.machine and given != allowed:
            return f"the key is for Worker {self.names} with {worded(allowed)}, not with {worded(given)}"
        outside = [label for label in given if not any(fnmatchcase(label, pattern) for pattern in allowed)]
        if outside and not self.machine:
            return f"the key registers Workers with {worded(allowed)}, not with {worded(outside)}"
        # Registering makes the replaced Worker gone at once: no Worker may end one of another name this way.
        if replaces and name_of(replaces) != name:
            return f"Worker {name} would replace {replaces}, and a Worker replaces only boots of its own name"
        return ""


def worded(labels: Iterable[str]) -> str:
    """Return labels, or patterns of labels, as words of a sentence."""
    found = sorted(labels)
    return f"label{'s' if len(found) > 1 else ''} {', '.join(found)}" if found else "no labels"


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request. `key` is the id of its API key, empty where access is open; `worker` and `boot` are set
    for a boot token, and `key` is then the key that the boot registered with."""

    key: str
    role: str
    tenant: str
    scopes: frozenset[Scope]
    bounds: Bounds = Bounds()
    worker: str = ""
    boot: str = ""

    @property
    def admin(self) -> bool:
        return "admin" in self.scopes

    @property
    def every_tenant(self) -> bool:
        """Whether the caller may name any tenant: whoever sees the fleet sees everybody's lives on it."""
        return self.admin or "fleet:read" in self.scopes

    @property
    def who(self) -> str:
        """The id of the caller's key, or its WorkerID; empty where access is open."""
        return self.key or self.worker


OPEN = Caller(key="", role="admin", tenant=TENANT, scopes=ROLES["admin"])
"""The caller of every request where access is open."""
NOBODY = Caller(key="", role="nobody", tenant=TENANT, scopes=frozenset())
"""The caller of an endpoint that needs no token."""
BY: ContextVar[Caller] = ContextVar("by", default=NOBODY)
"""Who has asked for what runs now; nobody for what a replica does by itself."""
