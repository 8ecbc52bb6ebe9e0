"""The store's address: one URL, parsed strictly into a value that never prints its passwords.

    redis://[user[:password]@]host[:port][,host[:port]...][/db]     also valkey://
    rediss://...?ca=FILE&cert=FILE&key=FILE                         also valkeys://; TLS, with the certificate verified
    sentinel://[user[:password]@]host[:port][,host[:port]...]/NAME[/db]      also sentinels://, with TLS
    unix://[user[:password]@]/path/to.sock[?db=N]
    file:///path/to/a/file                          which contains one of the above: no password on a command line

Each of them takes `replicas=N` and `fsync=1`. Several hosts of redis:// are seeds of one cluster, or one primary and
its replicas (`hosts.py`). The hosts of sentinel:// are Sentinels (`sentinel.py`): the login is the store's, and the
Sentinels get `sentinel_user=` and `sentinel_password=`.

An unknown part is refused: a misspelt option that is silently ignored is found in production.
"""

import re
import stat
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from dhsched.errors import BadAddress

DEFAULT_PORT = 6379
SENTINEL_PORT = 26379
HOSTS_MAX = 16  # A URL with more hosts is refused: a link may ask all of them each time that it connects.
REPLICAS_MAX = 8  # A URL with a larger replicas=N is refused.
FILE_BYTES_MAX = 4_096  # The rest of a longer file is not read.
SHOWN_CHARS = 200  # An error cuts off the rest of a longer URL.

PLAIN_SCHEMES = ("redis", "valkey")
TLS_SCHEMES = ("rediss", "valkeys")
SENTINEL_SCHEMES = {"sentinel": "redis", "sentinels": "rediss"}
"""The scheme of the servers that the Sentinels name."""
SCHEMES = (*PLAIN_SCHEMES, *TLS_SCHEMES, *SENTINEL_SCHEMES, "unix")

COMMON_OPTIONS = ("replicas", "fsync")
TLS_OPTIONS = ("ca", "cert", "key")
SENTINEL_OPTIONS = ("sentinel_user", "sentinel_password")

URL = re.compile(r"([a-z]+)://([^/?]*)([^?]*)(?:\?(.*))?", re.IGNORECASE | re.DOTALL)
# `:word@h1,:word@h2` and `h1,:word@h2`: all but the last host looks like a login.
SECOND_LOGIN = re.compile(r"[^@]*@[^@]*,[^@]*@|[^:,@]*(?::\d+)?,[^@]*:[^@]*@")
ENTRY = re.compile(
    r"(?:\[([^\[\]]*)\]|([^\[\]:]*))(?::([0-9]*))?"
)  # An address of IPv6 in brackets, or a name; a port.
HOST = re.compile(r"[\w.%-]+")
SERVICE = re.compile(r"[A-Za-z0-9._-]{1,64}")
ESCAPES = "write / ? # @ in a password as %2F %3F %23 %40"

# The kernel's sockaddr_un holds 108 bytes on Linux and 104 on macOS, with the closing zero.
SOCKET_PATH_MAX_BYTES = 103

NOT_HIGHLY_AVAILABLE = (
    "several standalone servers without ?replicas=N are no high availability: when the network between them is cut, "
    "two of them can be primaries, and services may write to both; give ?replicas=N, or use sentinel:// or a cluster"
)


class Host(NamedTuple):
    """One host and port of an address."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One store. `path` is set for a unix socket, `host` otherwise, with `others` for the further hosts of the URL.

    `service` is the name under which the Sentinels at these hosts know the store's primary; None without Sentinels.
    """

    scheme: str = "redis"
    host: str = "localhost"
    port: int = DEFAULT_PORT
    others: tuple[Host, ...] = ()
    path: str | None = None
    service: str | None = None
    db: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_user: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    replicas: int = 0  # Replicas that must have a write before it counts; 0 for none.
    fsync: bool = False

    @property
    def tls(self) -> bool:
        return self.scheme in TLS_SCHEMES or self.scheme == "sentinels"

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Return every host of the URL, in its order; none for a unix socket."""
        return (Host(self.host, self.port), *self.others) if self.path is None else ()

    @property
    def caution(self) -> str:
        """Return what this form of URL does not give although it may seem to; empty if there is nothing to say."""
        several = bool(self.others) and self.service is None
        return NOT_HIGHLY_AVAILABLE if several and not self.replicas else ""

    def at(self, host: Host) -> "Address":
        """Return the address of one server, with the login, database and options of this one."""
        scheme = "redis" if self.path is not None else SENTINEL_SCHEMES.get(self.scheme, self.scheme)
        alone = replace(self, scheme=scheme, host=host.name, port=host.port, others=(), path=None, service=None)
        return replace(alone, sentinel_user=None, sentinel_password=None)

    def redacted(self) -> str:
        """Return the URL without its passwords, for messages and logs."""
        return self._url("***", "***")

    def url(self) -> str:
        """Return the URL with its passwords: for another process that must reach the same store, never for a log."""
        return self._url(quote(self.password or "", safe=""), quote(self.sentinel_password or "", safe=""))

    def _url(self, password: str, sentinel_password: str) -> str:
        login = quote(self.user or "", safe="")
        if self.password is not None:
            login += f":{password}"
        login += "@" if login else ""
        db = f"/{self.db}" if self.db else ""
        service = f"/{self.service}" if self.service is not None else ""
        where = f"{','.join(map(str, self.hosts))}{service}{db}" if self.path is None else quote(self.path)
        return f"{self.scheme}://{login}{where}" + self._query(sentinel_password)

    def _query(self, sentinel_password: str) -> str:
        options = {
            **{name: quote(getattr(self, name) or "") for name in TLS_OPTIONS},
            "db": str(self.db) if self.path is not None and self.db else "",
            "sentinel_user": quote(self.sentinel_user or "", safe=""),
            "sentinel_password": sentinel_password if self.sentinel_password else "",
            "replicas": str(self.replicas or ""),
            "fsync": "1" if self.fsync else "",
        }
        query = "&".join(f"{name}={value}" for name, value in options.items() if value)
        return f"?{query}" if query else ""


def parse_address(url: str) -> Address:
    """Return the address in `url`. Raise BadAddress, which says what is wrong."""
    url = url.strip()
    if url.startswith("file:"):
        url = _in_file(url)
    found = URL.fullmatch(url)
    scheme = found[1].lower() if found is not None else ""
    if found is None or scheme not in SCHEMES:
        raise _bad(url, f"must start with {', '.join(f'{each}://' for each in SCHEMES)} or file://")
    netloc, path, query = found[2], found[3], found[4] or ""
    if "#" in url or (scheme != "unix" and "@" in path + query):
        raise _bad(url, f"has a # or an @ out of place: {ESCAPES}")
    if SECOND_LOGIN.match(netloc):
        raise _bad(
            url, "has a login before a second host: give one login, before all hosts, with @ and , as %40 and %2C"
        )
    login, _, hosts = netloc.rpartition("@")
    user, password = _login(login)
    options = _options(url, query, _allowed(scheme))
    alike = {"scheme": scheme, "user": user, "password": password, **_common(url, options)}
    if scheme == "unix":
        return Address(**alike, path=_unix(url, hosts, path), db=_db(url, options.get("db", "")))
    if ("cert" in options) != ("key" in options):
        raise _bad(url, "must give cert and key together")
    alike |= {name: options.get(name) for name in (*TLS_OPTIONS, *SENTINEL_OPTIONS)}
    if scheme not in SENTINEL_SCHEMES:
        return Address(**alike, **_hosts(url, hosts, DEFAULT_PORT), db=_db(url, path.strip("/")))
    service, _, db = path.strip("/").partition("/")
    if not SERVICE.fullmatch(service):
        raise _bad(url, "must give the name of the primary behind the Sentinels, as in sentinel://s1,s2,s3/NAME")
    return Address(**alike, **_hosts(url, hosts, SENTINEL_PORT), service=service, db=_db(url, db))


def _in_file(url: str) -> str:
    """Return the URL that the file contains."""
    authority, slash, rest = url.removeprefix("file:").removeprefix("//").partition("/")
    if authority or not slash or "?" in rest or "#" in rest:
        raise _bad(url, "must give an absolute path after file://, as in file:///etc/dhsched/store")
    path = Path(unquote("/" + rest))
    try:
        with path.open("rb") as file:
            found = file.read(FILE_BYTES_MAX).decode().strip()
            mode = stat.S_IMODE(path.stat().st_mode)
    except (OSError, ValueError) as error:
        raise _bad(url, f"names a file that cannot be read ({getattr(error, 'strerror', '') or error})") from None
    if found.startswith("file:"):
        raise _bad(url, "names a file that names a file; it must contain the store's URL")
    if mode & 0o007 and parsed_password(found):
        raise _bad(url, f"names a file with a password that everybody can read (mode {mode:o}); chmod 600 it")
    return found


def parsed_password(url: str) -> bool:
    """Return whether this URL, which may be malformed, contains a password."""
    return "password=" in url or ":" in url.partition("//")[2].rpartition("@")[0]


def _unix(url: str, host: str, quoted: str) -> str:
    if host or not quoted.startswith("/") or len(quoted) < 2:
        raise _bad(url, "must give an absolute path after unix://, as in unix:///run/store.sock")
    path = unquote(quoted)
    if (size_bytes := len(path.encode())) > SOCKET_PATH_MAX_BYTES:
        raise _bad(url, f"has a socket path of {size_bytes} bytes; the kernel takes {SOCKET_PATH_MAX_BYTES}")
    return path


def _login(text: str) -> tuple[str | None, str | None]:
    user, colon, password = text.partition(":")
    return unquote(user) or None, unquote(password) if colon else None


def _hosts(url: str, text: str, default_port: int) -> dict[str, Any]:
    """Return the hosts as fields of an Address. One host may be left out, and is this machine."""
    if len(entries := text.split(",")) > HOSTS_MAX:
        raise _bad(url, f"names {len(entries)} hosts: it may name {HOSTS_MAX}; one that answers names the others")
    found: list[Host] = []
    for n, entry in enumerate(entries, 1):
        place = f" (host {n} of {len(entries)})" if len(entries) > 1 else ""
        parsed = ENTRY.fullmatch(entry)
        port = int(parsed[3] or default_port) if parsed is not None else 0
        if parsed is None or not 0 < port < 65536:
            # The entry is not shown: it may be a piece of a password.
            raise _bad(url, f"has no valid host or port{place}: write IPv6 as [::1]:6379, and {ESCAPES}")
        if (host := Host(_host_name(url, parsed[1], parsed[2], place), port)) in found:
            raise _bad(url, f"names {host} twice")
        found.append(host)
    return {"host": found[0].name, "port": found[0].port, "others": tuple(found[1:])}


def _host_name(url: str, v6: str | None, name: str, place: str) -> str:
    if v6 is None:
        if not name and not place:
            return "localhost"
        if not HOST.fullmatch(name):
            raise _bad(url, f"has no valid host: {name!r}{place}")
    else:
        try:
            IPv6Address(v6)
        except ValueError:
            raise _bad(url, f"has no valid host: {v6!r}{place} is not an address of IPv6") from None
    address, percent, zone = (v6 or name).partition("%")
    return address.lower() + percent + zone


def _db(url: str, text: str) -> int:
    return _number(url, text, "a database number belongs") if text else 0


def _number(url: str, text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise _bad(url, f"has {text[:20]!r} where {what}")
    return int(text)


def _common(url: str, options: dict[str, str]) -> dict[str, Any]:
    """Return the options that every scheme takes as fields of an Address."""
    replicas = _number(url, options.get("replicas", "0"), "the number of replicas belongs")
    if replicas > REPLICAS_MAX:
        raise _bad(url, f"has replicas={replicas}: give 0 to {REPLICAS_MAX}")
    if (fsync := options.get("fsync", "0")) not in ("0", "1"):
        raise _bad(url, f"has fsync={fsync[:20]!r}: give 1, or leave it out")
    return {"replicas": replicas, "fsync": fsync == "1"}


def _allowed(scheme: str) -> tuple[str, ...]:
    if scheme == "unix":
        return ("db", *COMMON_OPTIONS)
    tls = TLS_OPTIONS if scheme in TLS_SCHEMES or scheme == "sentinels" else ()
    return (*tls, *(SENTINEL_OPTIONS if scheme in SENTINEL_SCHEMES else ()), *COMMON_OPTIONS)


def _options(url: str, query: str, allowed: tuple[str, ...]) -> dict[str, str]:
    options: dict[str, str] = {}
    for each in query.split("&") if query else ():
        name, _, quoted = each.partition("=")
        if name not in allowed:
            # What follows a password may be a piece of it, behind an & that was not written as %26.
            shown = "an unknown option" if "password=" in query else f"an unknown option {name[:40]!r}"
            tls = "; TLS options need rediss://, valkeys:// or sentinels://" if name in TLS_OPTIONS else ""
            raise _bad(url, f"has {shown}: it takes {', '.join(allowed)}{tls}")
        if not quoted or name in options:
            raise _bad(url, f"must give option {name!r} once, with a value")
        options[name] = unquote(quoted)
    return options


def _bad(url: str, problem: str) -> BadAddress:
    # The URL may be broken in any way, so its login is cut out of the text, up to the last '@', and all its options.
    shown = re.sub(r"^([a-z]*:/*).*@", r"\1***@", url.partition("password=")[0], flags=re.IGNORECASE | re.DOTALL)
    shown = re.sub(r"\?.*", "?...", shown, flags=re.DOTALL)
    shown = shown[:SHOWN_CHARS] + "..." if len(shown) > SHOWN_CHARS else shown
    return BadAddress(f"store address {shown!r} {problem}")
