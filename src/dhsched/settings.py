"""Settings of the roles: one frozen value per role, from flags, then the environment, then the default.

A setting is checked when it is read, so a process with a bad one does not start, and says which one it is and what it
may be. What all roles share is `DHSCHED_STORE`, `DHSCHED_CELL` and so on; the rest carries the role in its name, as in
`DHSCHED_DISPATCH_PORT`, because several roles run in one environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, TypeVar, get_type_hints

import msgspec

from dhsched.errors import BadSetting

SHARED = frozenset({"store", "cell", "log_level", "log_json"})
S = TypeVar("S")


def bounded(default: float, low: float, high: float, why: str) -> Any:
    """A number with its limits. A setting without limits is found out in production."""
    return field(default=default, metadata={"low": low, "high": high, "why": why})


def one_of(default: str, allowed: tuple[str, ...], why: str) -> Any:
    return field(default=default, metadata={"allowed": allowed, "why": why})


def free(default: Any, why: str) -> Any:
    """A setting that its user checks."""
    return field(default=default, metadata={"why": why})


def settings_from(kind: type[S], given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> S:
    """Settings of `kind`: what `given` has and is not None, else the environment, else the default."""
    environment = os.environ if environment is None else environment
    types = get_type_hints(kind)
    values: dict[str, Any] = {}
    for each in fields(kind):  # type: ignore[arg-type]
        key = environment_key(kind, each.name)
        if given.get(each.name) is not None:
            values[each.name] = given[each.name]
        elif environment.get(key):
            try:
                values[each.name] = msgspec.convert(environment[key], types[each.name], strict=False)
            except msgspec.ValidationError:
                raise BadSetting(f"{key} is {environment[key]!r}; it must be {_wanted(each, types)}") from None
    return kind(**values)


def environment_key(kind: type, name: str) -> str:
    role = "" if name in SHARED else f"{kind.ROLE.upper()}_"  # type: ignore[attr-defined]
    return f"DHSCHED_{role}{name.upper()}"


def check(settings: Any) -> None:
    """Every value within its limits; for `__post_init__` of a settings class."""
    types = get_type_hints(type(settings))
    for each in fields(settings):
        value, limits = getattr(settings, each.name), each.metadata
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        fits = True
        if "low" in limits:
            fits = number and limits["low"] <= value <= limits["high"]
        if "allowed" in limits:
            fits = value in limits["allowed"]
        if not fits:
            key = environment_key(type(settings), each.name)
            raise BadSetting(f"setting {each.name} ({key}) is {value!r}; it must be {_wanted(each, types)}")


def _wanted(each: Field[Any], types: Mapping[str, Any]) -> str:
    if "low" in each.metadata:
        whole = "a whole number" if types[each.name] is int else "a number"
        return f"{whole} from {each.metadata['low']:g} to {each.metadata['high']:g}"
    if "allowed" in each.metadata:
        return f"one of {', '.join(each.metadata['allowed'])}"
    return f"a {getattr(types[each.name], '__name__', types[each.name])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSettings:
    """One dispatch replica."""

    ROLE: ClassVar[str] = "dispatch"

    store: str | None = free(None, "The store's URL; without one the replica runs a store of its own.")
    cell: str = free("main", "The cell; one deployment is one cell.")
    host: str = free("127.0.0.1", "Where to listen.")
    port: int = bounded(7400, 0, 65535, "Where to listen; 0 takes any free port.")
    name: str = free("", "The replica's id; made up when empty.")
    in_flight_max: int = bounded(512, 1, 100_000, "Requests worked on at once; past it 503 BUSY.")
    waiting_max: int = bounded(
        1_000, 0, 100_000, "Creates that wait for room at once; past it they are not waited for."
    )
    wait_max_s: float = bounded(60, 0, 600, "The longest that a create may wait for room.")
    wait_look_s: float = bounded(1.0, 0.01, 60, "A waiting create looks for room at least this often.")
    deadline_s: float = bounded(5, 0.1, 60, "For a request, without what it waits for room.")
    refresh_min_s: float = bounded(0.2, 0.01, 60, "Between two refreshes of the view lies at least this ...")
    refresh_max_s: float = bounded(1.0, 0.01, 60, "... and at most this long, by chance.")
    full_every_s: float = bounded(30, 0.1, 3600, "A refresh of all Workers, which also finds those that vanished.")
    fresh_s: float = bounded(5, 0.1, 600, "A view that is older makes the replica unready.")
    memory_max: float = bounded(0.9, 0.1, 1.0, "The share of the store's memory past which creates are refused.")
    worker_ttl_s: float = bounded(3, 0.5, 3600, "A Worker whose beat stands still this long is called lost.")
    liveness_s: float = bounded(0.5, 0.05, 0.6, "Between two readings of all beats.")
    reconcile_s: float = bounded(10, 0.1, 3600, "Between two rounds of reconciliation.")
    recover_s: float = bounded(0.2, 0.02, 60, "Between two readings of the agenda.")
    blame_window_s: float = bounded(600, 1, 86_400, "Troubles of a Worker's name count for this long.")
    losses_max: int = bounded(3, 1, 64, "Times that a name may be lost within it before its Worker is cordoned.")
    stalls_max: int = bounded(8, 1, 64, "Lives that may stall on a name within it, likewise.")
    crashes_max: int = bounded(8, 1, 64, "Lives whose runtime may end on a name within it, likewise.")
    cordon_share: float = bounded(0.25, 0, 1, "Of a Pool that may be out before Workers are not cordoned for blame.")
    departing_max_s: float = bounded(
        600, 1, 86_400, "A runtime that was told to stop and has not after this long cordons its Worker."
    )
    drain_s: float = bounded(0.5, 0.05, 60, "Between two looks at draining Workers.")
    cut_over_s: float = bounded(0.02, 0.005, 1, "Between two tries to cut over a live whose target is prepared.")
    boundary_wait_s: float = bounded(
        60, 0, 100, "A drained live that finds no boundary for so long is cut over anyway."
    )
    rebalance_s: float = bounded(10, 0.1, 3600, "Between two looks at how even a Pool is, and two turns to act on it.")
    policy: str = free("bottom-tier", "The placement policy; placement/policies.py lists them.")
    stop_s: float = bounded(10, 0, 600, "For requests in flight when the replica stops.")
    log_level: str = one_of("info", ("debug", "info", "warning", "error"), "What is logged.")
    log_json: bool = free(False, "Logs as JSON lines.")

    def __post_init__(self) -> None:
        check(self)
        if self.refresh_min_s > self.refresh_max_s:
            raise BadSetting(
                f"setting refresh_min_s is {self.refresh_min_s:g} and refresh_max_s {self.refresh_max_s:g}; the first "
                "must not be the larger one"
            )
