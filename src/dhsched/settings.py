"""Settings of the roles: one frozen value per role, from the default, a TOML file, the environment, then flags.

    [shared]                       settings that several roles have; in the environment DHSCHED_STORE, DHSCHED_CELL, ...
    store = "redis://store:6379"

    [dispatch]                     settings of one role; in the environment DHSCHED_DISPATCH_PORT, ...
    port = 7400

The file is named by --config or DHSCHED_CONFIG. A secret may also be a systemd credential that is named like its
variable. Each setting is checked when it is read: a process with a bad setting does not start, and its error names the
setting, the source of the value and the allowed values. A name that does not exist is refused with the nearest name
that does, because a misspelt setting must not be ignored silently.
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
        *("store", "cell", "cells", "allow_eviction", "log_level", "log_json"),
        *("access", "insecure", "allowed_origins", "tls_cert", "tls_key", "tls_ca", "key_rate_per_s"),
        *("head_s", "body_s", "idle_s"),
    }
)
ROLES = ("dispatch", "infer", "worker", "room")
CONFIG = "DHSCHED_CONFIG"
CREDENTIALS = "CREDENTIALS_DIRECTORY"  # systemd's LoadCredential= names it.
SECRET_BYTES_MAX = 65_536  # A larger file is no secret, but a mistake.
S = TypeVar("S")


def bounded(default: float, low: float, high: float, help: str) -> Any:
    """Declare a number with its limits; a value outside them is refused at start."""
    return field(default=default, metadata={"low": low, "high": high, "help": help})


def required(help: str, **limits: Any) -> Any:
    """Declare a setting that must be given. A number needs `low` and `high`."""
    return field(metadata={"help": help, **limits})


def one_of(default: str, allowed: tuple[str, ...], help: str) -> Any:
    return field(default=default, metadata={"allowed": allowed, "help": help})


def free(default: Any, help: str, **more: Any) -> Any:
    """Declare a setting whose value is checked where it is used.

    `secret` masks the value wherever it is printed; `environment` names its variable; `flag` names its flag.
    """
    return field(default=default, metadata={"help": help, **more})


TLS_CA = free("", "PEM file with the authority that signed the servers' certificates, trusted beside the system's.")


@dataclass(frozen=True, slots=True)
class Effective(Generic[S]):
    """Settings of a role, and the source of each by name: `default`, `flag --port`, `environment ...`, `file ...`."""

    settings: S
    sources: Mapping[str, str]


def settings_from(kind: type[S], given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> S:
    """Return settings of `kind`: each from `given` if not None, else the environment, the file, the default."""
    return effective(kind, given, environment).settings


def effective(kind: type[S], given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Effective[S]:
    """Return the settings that `settings_from` returns, with their sources. `given["config"]` names the file."""
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
        elif each.metadata.get("secret") and (credential := _credential(key, environment)) is not None:
            value, source, strict = read_secret(credential, f"credential {key}"), f"credential {key}", False
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


def _credential(key: str, environment: Mapping[str, str]) -> Path | None:
    """Return the file of the systemd credential that is named `key`; None if there is none."""
    folder = environment.get(CREDENTIALS)
    return path if folder and (path := Path(folder) / key).exists() else None


def settings_of(kind: type) -> list[Field[Any]]:
    """Return every setting of a role: its own first, then the shared ones."""
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
    """Return the file's values for this role with their section; the role's own section wins over [shared]."""
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
    """Return the end of an error about an unknown name: the nearest known name, or all known names."""
    known = sorted(names)
    close = difflib.get_close_matches(name, known, 1, 0.5)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"


def _refuse_unknown_variables(kind: type, environment: Mapping[str, str]) -> None:
    prefix = f"DHSCHED_{kind.ROLE.upper()}_"  # type: ignore[attr-defined]
    known = {environment_key(kind, each.name) for each in fields(kind)}
    for key in environment:
        if key.startswith(prefix) and key not in known:
            raise BadSetting(f"{key} is set, but there is no such setting{nearest(key, known)}")


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
    """Raise BadSetting for a value outside its limits; for `__post_init__` of a settings class."""
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
        raise BadSetting(f"setting {given} is given but {lacking} is not; TLS needs both")
    check_origins("allowed_origins", settings.allowed_origins)
    if settings.access == "open" and not settings.insecure and not is_loopback(settings.host):
        raise BadSetting(
            f"{settings.ROLE} would listen on {settings.host or 'every address'} and let anybody do anything: set "
            "access to keys (--access keys; `dhsched key create --role admin` makes the first key), listen on "
            "127.0.0.1, or give --insecure if the network itself keeps strangers out"
        )
    if not settings.tls_cert and not settings.insecure and not is_loopback(settings.host):
        raise BadSetting(
            f"{settings.ROLE} would listen on {settings.host or 'every address'} without TLS, and whoever is on the "
            "way could read and use every token: give --tls-cert and --tls-key, listen on 127.0.0.1 behind a proxy "
            "that does TLS, or give --insecure if the network itself keeps strangers out"
        )


def check_origins(setting: str, given: str) -> None:
    """Raise BadSetting unless each entry of the list `given` is an origin."""
    for origin in listed(given):
        parts = urlsplit(origin)
        whole = parts.netloc and origin == f"{parts.scheme}://{parts.netloc}"
        if parts.scheme not in ("http", "https") or not whole or any(mark in origin for mark in " ;'\"\t"):
            raise BadSetting(
                f"setting {setting} names {origin!r}; each entry must be an origin, like https://app.example "
                "or http://localhost:3000, without a path"
            )


def listed(given: str) -> tuple[str, ...]:
    """Return the parts of a list that is separated by commas, without empty ones."""
    return tuple(each.strip() for each in given.split(",") if each.strip())


def key_of(settings: Any) -> str:
    """Return the API key with which a role calls others, from its `key` or `key_file`; empty if neither is given."""
    if settings.key and settings.key_file:
        raise BadSetting("both key and key_file are given; give one of them")
    return settings.key or (read_secret(Path(settings.key_file), "key_file") if settings.key_file else "")


def read_secret(path: Path, setting: str) -> str:
    """Return the text of a secret's file, without white space around it. `setting` named that file: errors say so."""
    try:
        with path.open("rb") as file:
            text = file.read(SECRET_BYTES_MAX + 1).decode().strip()
    except OSError as error:
        raise BadSetting(f"cannot read {path} ({error.strerror}); check {setting}") from None
    except UnicodeDecodeError:
        raise BadSetting(f"{path} is not text; check {setting}") from None
    if not text or len(text) > SECRET_BYTES_MAX:
        raise BadSetting(f"{path} is {'too long for a secret' if text else 'empty'}; check {setting}")
    return text


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`. Of names only localhost is: others may resolve to anything."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_metrics_host(host: str, *, port: int, insecure: bool) -> None:
    """Raise BadSetting for a listener of metrics that strangers could reach: it has no TLS and asks for no token."""
    if port and not insecure and not is_loopback(host):
        raise BadSetting(
            f"setting metrics_host is {host or 'every address'}, where anybody could read the metrics: set it to "
            "127.0.0.1, or give --insecure if the network itself keeps strangers out"
        )


def wanted_of(each: Field[Any], hints: Mapping[str, Any]) -> str:
    """Return a description of a setting's allowed values."""
    if "low" in each.metadata:
        whole = "a whole number" if hints[each.name] is int else "a number"
        return f"{whole} from {each.metadata['low']:.9g} to {each.metadata['high']:.9g}"
    if "allowed" in each.metadata:
        return f"one of {', '.join(each.metadata['allowed'])}"
    if isinstance(wanted := hints[each.name], types.UnionType):
        wanted = next(kind for kind in get_args(wanted) if kind is not type(None))
    words = {str: "text", bool: "true or false", Path: "a path"}
    return words.get(wanted, "a list of texts" if get_origin(wanted) is tuple else str(wanted))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """Settings of every role that listens. Each role has defaults of its own for those that have none here."""

    ROLE: ClassVar[str]

    host: str = free("127.0.0.1", "Address to listen on.")
    port: int = required("Port to listen on; 0 takes any free port.", low=0, high=65535)
    allowed_origins: str = free(
        "",
        "Origins like https://app.example, separated by commas: their pages may call this listener, and it answers to "
        "their host names.",
    )
    tls_cert: str = free("", "PEM file with the certificate and its chain; with it the listener uses TLS.")
    tls_key: str = free("", "PEM file with the certificate's private key.")
    head_s: float = bounded(
        10, 0.1, 600, "Time from a new connection to the end of its first request's head; then it is closed."
    )
    body_s: float = bounded(10, 0.1, 600, "Time for a request's body to arrive; then 408 TIMEOUT.")
    idle_s: float = bounded(
        75, 1, 3600, "Time from a response to the end of the next request's head; then the connection is closed."
    )
    in_flight_max: int = required("Requests handled at once; past this 503 BUSY.", low=1, high=100_000)
    connections_per_address_max: int = bounded(
        10_000, 1, 1_000_000, "TCP connections at once from one address; further ones are closed."
    )
    trusted_proxies: str = free(
        "",
        "Addresses or networks of proxies, separated by commas: they may have any number of connections, and at a room "
        "their X-Forwarded-For names the viewer's address.",
    )
    stop_s: float = required("Time for requests in flight when the role stops.", low=0, high=600)
    access: str = one_of(
        "keys", ("open", "keys"), "Whether callers need a token (keys) or not (open; on loopback only)."
    )
    insecure: bool = free(
        False, "Whether to listen beyond loopback without TLS, or although access is open: only where no stranger is."
    )
    log_level: str = one_of("info", ("debug", "info", "warning", "error"), "Lowest level that is logged.")
    log_json: bool = free(False, "Whether logs are JSON lines.")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings(ListenerSettings):
    """Settings of every role that uses the store and checks its callers."""

    cell: str = free("main", "Name of the cell of a deployment that has one cell.")
    cells: str = free(
        "", "Cells of a deployment that has several, in an order that never changes: 'NAME[=URL] ...'.", secret=True
    )
    allow_eviction: bool = free(
        False, "Whether to start on a store whose maxmemory-policy is allkeys-*, although it may delete lives."
    )
    key_rate_per_s: float = bounded(
        2_000, 0.1, 1e6, "Requests per second of one API key at one replica, then 429; a key may have its own limit."
    )
    connections_per_key_max: int = bounded(
        10_000, 1, 1_000_000, "WebSockets and watchers at once of one API key at one replica; past this 503 BUSY."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSettings(ReplicaSettings):
    """Settings of one Dispatch replica."""

    ROLE: ClassVar[str] = "dispatch"

    store: str | None = free(None, "URL of the store; without one the replica starts its own store.", secret=True)
    port: int = bounded(7400, 0, 65535, "Port to listen on; 0 takes any free port.")
    name: str = free("", "Id of the replica; generated when empty.")
    in_flight_max: int = bounded(512, 1, 100_000, "Requests handled at once; past this 503 BUSY.")
    waiting_max: int = bounded(
        1_000, 0, 100_000, "Creates that wait for a free slot at once; past this a create is refused at once."
    )
    wait_max_s: float = bounded(60, 0, 600, "Longest time that a create waits for a free slot, whatever it asks for.")
    wait_retry_s: float = bounded(1.0, 0.01, 60, "Longest time between two attempts of a waiting create.")
    deadline_s: float = bounded(5, 0.1, 60, "Time for a request, beside its wait for a free slot.")
    refresh_min_s: float = bounded(0.2, 0.01, 60, "Shortest time between two refreshes of the view; each is random.")
    refresh_max_s: float = bounded(1.0, 0.01, 60, "Longest time between two refreshes of the view.")
    full_every_s: float = bounded(
        30, 0.1, 3600, "Time between two refreshes of all Workers, which also find vanished ones."
    )
    fresh_s: float = bounded(5, 0.1, 600, "Age of the view past which the replica is not ready.")
    memory_max: float = bounded(0.9, 0.1, 1.0, "Share of the store's memory from which creates are refused.")
    worker_ttl_s: float = bounded(3, 0.5, 3600, "Time without a new beat after which a Worker is declared lost.")
    liveness_s: float = bounded(0.5, 0.05, 0.6, "Time between two reads of all beats.")
    reconcile_s: float = bounded(10, 0.1, 3600, "Time between two rounds of reconciliation.")
    recover_s: float = bounded(0.2, 0.02, 60, "Time between two reads of the agenda.")
    blame_window_s: float = bounded(600, 1, 86_400, "Time for which the failures of a Worker's name are counted.")
    losses_max: int = bounded(3, 1, 64, "Losses of a name within blame_window_s; past this its Worker is cordoned.")
    stalls_max: int = bounded(
        8, 1, 64, "Stalled lives of a name within blame_window_s; past this its Worker is cordoned."
    )
    crashes_max: int = bounded(
        8, 1, 64, "Ended runtimes of a name within blame_window_s; past this its Worker is cordoned."
    )
    cordon_share: float = bounded(
        0.25, 0, 1, "Share of a Pool that may be out; past this no Worker is cordoned for failures."
    )
    departing_max_s: float = bounded(
        600,
        1,
        86_400,
        "Time that a runtime may take to end after it was asked to stop; past this its Worker is cordoned.",
    )
    drain_s: float = bounded(0.5, 0.05, 60, "Time between two rounds over draining Workers.")
    cut_over_s: float = bounded(0.02, 0.005, 1, "Time between two attempts to cut over lives whose target is prepared.")
    boundary_wait_s: float = bounded(
        60, 0, 100, "Time that a drained live waits for a boundary; then it is cut over without one."
    )
    meter_s: float = bounded(10, 0.1, 3600, "Time between two meterings of the live time of tenants.")
    rebalance_s: float = bounded(10, 0.1, 3600, "Time between two checks of a Pool's spread, and two rounds of moves.")
    otlp: str = free(
        "", "URL of an OpenTelemetry collector that gets traces by OTLP over HTTP; needs the extra otel. Empty: none."
    )
    room: str = free(
        "", "URL of the room as browsers reach it, without a path; the console shows lives there. Empty: no picture."
    )
    policy: str = free("emptiest", "Placement policy, one of those in placement/policies.py.")
    stop_s: float = bounded(10, 0, 600, "Time for requests in flight when the replica stops.")

    def __post_init__(self) -> None:
        check(self)
        check_origins("room", self.room)
        if "," in self.room:
            raise BadSetting(f"setting room names {self.room!r}; it must be one URL: that of the room, or its balancer")
        if self.refresh_min_s > self.refresh_max_s:
            raise BadSetting(
                f"setting refresh_min_s is {self.refresh_min_s:g} and refresh_max_s {self.refresh_max_s:g}; "
                "refresh_min_s must not be the larger one"
            )
