"""Settings of the roles: one frozen value per role, from the default, a TOML file, the environment, then flags.

    [shared]                       what all roles have: DHSCHED_STORE, DHSCHED_CELL and so on in the environment
    store = "redis://store:6379"

    [dispatch]                     the rest carries the role in its name: DHSCHED_DISPATCH_PORT
    port = 7400

The file is named by --config or DHSCHED_CONFIG. A setting is checked when it is read, so a process with a bad one does
not start, and says which one it is, where it came from and what it may be. A name that does not exist is refused with
the nearest one that does: a misspelt setting that is silently ignored is found in production.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import tomllib
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec

from dhsched.errors import BadSetting

SHARED = frozenset(
    {
        *("store", "cell", "allow_eviction", "log_level", "log_json"),
        *("access", "insecure", "allowed_origins", "tls_cert", "tls_key", "tls_ca", "key_rate_per_s"),
        *("head_s", "body_s", "idle_s"),
    }
)
ROLES = ("dispatch", "infer", "worker", "room")
CONFIG = "DHSCHED_CONFIG"
S = TypeVar("S")


def bounded(default: float, low: float, high: float, help: str) -> Any:
    """A number with its limits. A setting without limits is found out in production."""
    return field(default=default, metadata={"low": low, "high": high, "help": help})


def required(help: str, **limits: Any) -> Any:
    """A setting that must be given; `low` and `high`, where it is a number."""
    return field(metadata={"help": help, **limits})


def one_of(default: str, allowed: tuple[str, ...], help: str) -> Any:
    return field(default=default, metadata={"allowed": allowed, "help": help})


def free(default: Any, help: str, **more: Any) -> Any:
    """A setting that its user checks. `secret` is masked where it is shown; `environment` is its variable's name."""
    return field(default=default, metadata={"help": help, **more})


TLS_CA = free("", "A PEM file with the authority of the servers' certificates, beside the usual ones.")


@dataclass(frozen=True, slots=True)
class Effective(Generic[S]):
    """Settings, and where each of them came from, in words."""

    settings: S
    sources: Mapping[str, str]


def settings_from(kind: type[S], given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> S:
    """Settings of `kind`: what `given` has and is not None, else the environment, else the file, else the default."""
    return effective(kind, given, environment).settings


def effective(kind: type[S], given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Effective[S]:
    """The same, with the source of each. `given` may name the file, as `config`."""
    environment = os.environ if environment is None else environment
    hints = get_type_hints(kind)
    file = given.get("config") or environment.get(CONFIG)
    from_file = read_file(Path(file), kind) if file else {}
    _refuse_unknown_variables(kind, environment)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for each in settings_of(kind):
        name, key = each.name, environment_key(kind, each.name)
        if given.get(name) is not None:
            value, source, strict = given[name], f"flag --{flag_of(each)}", True
        elif environment.get(key):
            value, source, strict = environment[key], f"environment {key}", False
        elif name in from_file:
            value, source = from_file[name]
            strict = True
        elif each.default is MISSING:
            raise BadSetting(
                f"setting {name} is not given and has no default; give --{flag_of(each)}, set {key}, or put it under "
                f"[{kind.ROLE}] in the file that --config names"  # type: ignore[attr-defined]
            )
        else:
            sources[name] = "default"
            continue
        values[name] = _convert(each, hints, value, source, strict=strict)
        sources[name] = source
    return Effective(kind(**values), sources)


def settings_of(kind: type) -> list[Field[Any]]:
    """Every setting of a role: its own first, then those that several roles have."""
    return sorted(fields(kind), key=lambda each: each.name in SHARED)


def environment_key(kind: type, name: str) -> str:
    for each in fields(kind):
        if each.name == name and "environment" in each.metadata:
            return str(each.metadata["environment"])
    role = "" if name in SHARED else f"{kind.ROLE.upper()}_"  # type: ignore[attr-defined]
    return f"DHSCHED_{role}{name.upper()}"


def flag_of(each: Field[Any]) -> str:
    return str(each.metadata.get("flag", each.name)).replace("_", "-")


# -- the file


def read_file(path: Path, kind: type) -> dict[str, tuple[Any, str]]:
    """What the file says for this role, and in which section; the role's own section wins over [shared]."""
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise BadSetting(f"cannot read the configuration file {path} ({error.strerror}); check --config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSetting(f"the configuration file {path} is not TOML: {error}") from None
    role: str = kind.ROLE  # type: ignore[attr-defined]
    own = {each.name for each in fields(kind)}
    allowed = {"shared": SHARED, role: own}
    found: dict[str, tuple[Any, str]] = {}
    for section in document:
        if section not in ("shared", *ROLES):
            raise BadSetting(f"{path}: there is no section [{section}]{nearest(section, ('shared', *ROLES))}")
        if not isinstance(document[section], dict):
            raise BadSetting(f"{path}: {section} must be a section, [{section}], with settings below it")
    for section, names in allowed.items():
        for name, value in document.get(section, {}).items():
            if name not in names:
                raise BadSetting(f"{path}: [{section}] has no setting {name}{nearest(name, names)}")
            if name in own:
                found[name] = (value, f"file {path} [{section}]")
    return found


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of a sentence about a name that does not exist."""
    known = sorted(names)
    close = difflib.get_close_matches(name, known, 1, 0.5)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"


def _refuse_unknown_variables(kind: type, environment: Mapping[str, str]) -> None:
    prefix = f"DHSCHED_{kind.ROLE.upper()}_"  # type: ignore[attr-defined]
    known = {environment_key(kind, each.name) for each in fields(kind)}
    for key in environment:
        if key.startswith(prefix) and key not in known:
            raise BadSetting(f"{key} is set, and there is no such setting{nearest(key, known)}")


# -- values


def _convert(each: Field[Any], hints: Mapping[str, Any], value: Any, source: str, *, strict: bool) -> Any:
    wanted = hints[each.name]
    if get_origin(wanted) is tuple and isinstance(value, str):
        value = tuple(part.strip() for part in value.split(",") if part.strip())
    try:
        if Path in (wanted, *get_args(wanted)):
            value = value if isinstance(value, Path) else Path(msgspec.convert(value, str))
        else:
            value = msgspec.convert(value, wanted, strict=strict)
    except msgspec.ValidationError:
        raise _bad(each, hints, value, source) from None
    if not _fits(each, value):
        raise _bad(each, hints, value, source)
    return value


def _fits(each: Field[Any], value: Any) -> bool:
    limits = each.metadata
    if "low" in limits:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and limits["low"] <= value <= limits["high"]
    return value in limits["allowed"] if "allowed" in limits else True


def _bad(each: Field[Any], hints: Mapping[str, Any], value: Any, source: str) -> BadSetting:
    said = "***" if each.metadata.get("secret") else repr(value)
    return BadSetting(f"setting {each.name} ({source}) is {said}; it must be {wanted_of(each, hints)}")


def check(settings: Any) -> None:
    """Every value within its limits; for `__post_init__` of a settings class."""
    hints = get_type_hints(type(settings))
    for each in fields(settings):
        value = getattr(settings, each.name)
        if not _fits(each, value):
            raise _bad(each, hints, value, environment_key(type(settings), each.name))
    if hasattr(settings, "tls_cert"):
        _check_listener(settings)


def _check_listener(settings: Any) -> None:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        given, lacking = ("tls_cert", "tls_key") if settings.tls_cert else ("tls_key", "tls_cert")
        raise BadSetting(f"setting {given} is given and {lacking} is not; TLS needs both")
    for origin in listed(settings.allowed_origins):
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
            raise BadSetting(
                f"setting allowed_origins names {origin!r}; each must be an origin, like https://app.example or "
                "http://localhost:3000, and nothing else"
            )
    # A room has no `access`: its viewers have no keys.
    if getattr(settings, "access", "keys") == "open" and not settings.insecure and not is_loopback(settings.host):
        raise BadSetting(
            f"{settings.ROLE} would listen on {settings.host or 'every address'} and let anybody do anything: make a "
            "key with `dhsched key create --role admin` and set access to keys (--access keys), listen on 127.0.0.1, "
            "or say --insecure if the network itself keeps strangers out"
        )


def listed(given: str) -> tuple[str, ...]:
    """What is written with commas between."""
    return tuple(each.strip() for each in given.split(",") if each.strip())


def shown_key(key: str, key_file: str) -> str:
    """The API key of a role that calls others: given itself, or in a file; empty without one."""
    if key and key_file:
        raise BadSetting("both key and key_file are given; give one of them")
    return key or (read_key(key_file, "key_file") if key_file else "")


def read_key(path: str, setting: str) -> str:
    """The key in a file of its own, which `setting` names."""
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise BadSetting(f"cannot read the key file {path} ({error.strerror}); check {setting}") from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it. A name is one only if it is localhost: it may resolve to anything."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def wanted_of(each: Field[Any], hints: Mapping[str, Any]) -> str:
    """What a setting may be, in words."""
    if "low" in each.metadata:
        whole = "a whole number" if hints[each.name] is int else "a number"
        return f"{whole} from {each.metadata['low']:.9g} to {each.metadata['high']:.9g}"
    if "allowed" in each.metadata:
        return f"one of {', '.join(each.metadata['allowed'])}"
    wanted = hints[each.name]
    if isinstance(wanted, types.UnionType):
        wanted = next(kind for kind in get_args(wanted) if kind is not type(None))
    words = {str: "text", bool: "true or false", Path: "a path"}
    return words.get(wanted, "a list of texts" if get_origin(wanted) is tuple else str(wanted))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """What every role that listens is told."""

    ROLE: ClassVar[str]

    host: str = free("127.0.0.1", "Where to listen.")
    allowed_origins: str = free(
        "",
        "Origins like https://app.example, separated by commas: whose pages may call it, and whose names are its own.",
    )
    tls_cert: str = free("", "A PEM file with the certificate and its chain: the listener speaks TLS.")
    tls_key: str = free("", "A PEM file with the certificate's key.")
    head_s: float = bounded(
        10, 0.1, 600, "From a new connection to the end of its first request's head; then it is closed."
    )
    body_s: float = bounded(10, 0.1, 600, "For a request's body to come; then 408 TIMEOUT.")
    idle_s: float = bounded(
        75, 1, 3600, "From an answer to the end of the next request's head; then the connection is closed."
    )
    log_level: str = one_of("info", ("debug", "info", "warning", "error"), "What is logged.")
    log_json: bool = free(False, "Logs as JSON lines.")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings(ListenerSettings):
    """What every role is told that reaches the store and has a gate."""

    cell: str = free("main", "The cell; one deployment is one cell.")
    allow_eviction: bool = free(
        False, "Start on a store whose maxmemory-policy is allkeys-*, although it may delete lives."
    )
    access: str = one_of(
        "keys", ("open", "keys"), "Whether callers need a token (keys), or not (open: on loopback only)."
    )
    insecure: bool = free(False, "Listen elsewhere than on loopback although access is open: anybody can do anything.")
    key_rate_per_s: float = bounded(
        2_000, 0.1, 1e6, "Requests a second of one API key at one replica; a key may have its own limit."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSettings(ReplicaSettings):
    """One dispatch replica."""

    ROLE: ClassVar[str] = "dispatch"

    store: str | None = free(None, "The store's URL; without one the replica runs a store of its own.", secret=True)
    port: int = bounded(7400, 0, 65535, "Where to listen; 0 takes any free port.")
    name: str = free("", "The replica's id; made up when empty.")
    in_flight_max: int = bounded(512, 1, 100_000, "Requests worked on at once; past it 503 BUSY.")
    waiting_max: int = bounded(
        1_000, 0, 100_000, "Creates that wait for a free slot at once; past it they are not waited for."
    )
    wait_max_s: float = bounded(60, 0, 600, "The longest that a create may wait for a free slot.")
    wait_retry_s: float = bounded(1.0, 0.01, 60, "A waiting create looks for a free slot at least this often.")
    deadline_s: float = bounded(5, 0.1, 60, "For a request, without what it waits for a free slot.")
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
    policy: str = free("emptiest", "The placement policy; placement/policies.py lists them.")
    stop_s: float = bounded(10, 0, 600, "For requests in flight when the replica stops.")

    def __post_init__(self) -> None:
        check(self)
        if self.refresh_min_s > self.refresh_max_s:
            raise BadSetting(
                f"setting refresh_min_s is {self.refresh_min_s:g} and refresh_max_s {self.refresh_max_s:g}; the first "
                "must not be the larger one"
            )
