"""The store's address: one URL, parsed strictly into a value that never prints its password.

    redis://[user[:password]@]host[:port][/db]      also valkey://
    rediss://...?ca=FILE&cert=FILE&key=FILE         also valkeys://; TLS, with the certificate verified
    unix://[user[:password]@]/path/to.sock[?db=N]
    file:///path/to/a/file                          which contains one of the above: no password on a command line

An unknown part is refused: a misspelt option that is silently ignored is found in production.
"""

import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from dhsched.errors import BadAddress

DEFAULT_PORT = 6379
FILE_BYTES_MAX = 4_096  # The rest of a longer file is not read.
PLAIN_SCHEMES = ("redis", "valkey")
TLS_SCHEMES = ("rediss", "valkeys")
TLS_OPTIONS = ("ca", "cert", "key")

ONE_HOST = "give the primary's alone, or one node of a cluster, which names the others"
SECOND_LOGIN = re.compile(r"@[^@]*,[^@]*@")  # `:word@h1,:word@h2`: all but the last host looks like a password.
HOST = re.compile(r"[\w.:%-]+")  # A name or an address, also of IPv6 with its zone.

# The kernel's sockaddr_un holds 108 bytes on Linux and 104 on macOS, with the closing zero.
SOCKET_PATH_MAX_BYTES = 103


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One server. `path` is set for a unix socket, `host` otherwise."""

    scheme: str = "redis"
    host: str = "localhost"
    port: int = DEFAULT_PORT
    path: str | None = None
    db: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    @property
    def tls(self) -> bool:
        return self.scheme in TLS_SCHEMES

    def redacted(self) -> str:
        """Return the URL without its password, for messages and logs."""
        return self._url("***")

    def url(self) -> str:
        """Return the URL with its password: for another process that must reach the same store, never for a log."""
        return self._url(quote(self.password or "", safe=""))

    def _url(self, password: str) -> str:
        login = quote(self.user or "", safe="")
        if self.password is not None:
            login += f":{password}"
        login += "@" if login else ""
        if self.path is not None:
            return f"unix://{login}{quote(self.path)}" + (f"?db={self.db}" if self.db else "")
        host = f"[{self.host}]" if ":" in self.host else self.host
        options = [f"{name}={quote(value)}" for name in TLS_OPTIONS if (value := getattr(self, name))]
        where = f"{self.scheme}://{login}{host}:{self.port}" + (f"/{self.db}" if self.db else "")
        return where + ("?" + "&".join(options) if options else "")


def parse_address(url: str) -> Address:
    """Return the address in `url`. Raise BadAddress, which says what is wrong."""
    if url.startswith("file:"):
        url = _in_file(url)
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2]
        if "," in hosts:
            raise _bad(url, f"names several hosts ({hosts}): {ONE_HOST}")
        if SECOND_LOGIN.search(parts.netloc):
            raise _bad(url, f"names several hosts, or has an @ in its password (write %40): {ONE_HOST}")
        port = None if "#" in url else parts.port
    except ValueError:
        # Python's message is not shown: it may quote a piece of the password.
        raise _bad(url, "has no valid host or port: write / ? # @ in a password as %2F %3F %23 %40") from None
    if "#" in url or (parts.scheme != "unix" and "@" in parts.path + parts.query):
        raise _bad(url, "has a # or an @ out of place: write / ? # @ in a password as %2F %3F %23 %40")
    if parts.scheme == "unix":
        return _unix(url, parts)
    if parts.scheme not in PLAIN_SCHEMES + TLS_SCHEMES:
        raise _bad(url, "must start with redis://, valkey://, rediss://, valkeys://, unix:// or file://")
    allowed = TLS_OPTIONS if parts.scheme in TLS_SCHEMES else ()
    options = _options(url, parts.query, allowed)
    if ("cert" in options) != ("key" in options):
        raise _bad(url, "must give cert and key together")
    host = parts.hostname or "localhost"
    if not HOST.fullmatch(host):
        raise _bad(url, f"has no valid host: {host!r}")
    user, password = _login(parts)
    return Address(
        scheme=parts.scheme,
        host=host,
        port=DEFAULT_PORT if port is None else port,
        db=_db(url, parts.path.strip("/")),
        user=user,
        password=password,
        **options,
    )


def _in_file(url: str) -> str:
    """Return the URL that the file contains."""
    parts = urlsplit(url)
    if parts.hostname or not parts.path.startswith("/") or parts.query:
        raise _bad(url, "must give an absolute path after file://, as in file:///etc/dhsched/store")
    path = Path(unquote(parts.path))
    try:
        with path.open("rb") as file:
            found = file.read(FILE_BYTES_MAX).decode().strip()
            mode = stat.S_IMODE(path.stat().st_mode)
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(url, f"names a file that cannot be read ({getattr(error, 'strerror', '') or error})") from None
    if found.startswith("file:"):
        raise _bad(url, "names a file that names a file; it must contain the store's URL")
    if mode & 0o007 and parsed_password(found):
        raise _bad(url, f"names a file with a password that everybody can read (mode {mode:o}); chmod 600 it")
    return found


def parsed_password(url: str) -> bool:
    """Return whether this URL, which may be malformed, contains a password."""
    return ":" in url.partition("//")[2].rpartition("@")[0]


def _unix(url: str, parts: SplitResult) -> Address:
    if parts.hostname or not parts.path.startswith("/") or len(parts.path) < 2:
        raise _bad(url, "must give an absolute path after unix://, as in unix:///run/store.sock")
    path = unquote(parts.path)
    size_bytes = len(path.encode())
    if size_bytes > SOCKET_PATH_MAX_BYTES:
        raise _bad(url, f"has a socket path of {size_bytes} bytes; the kernel takes {SOCKET_PATH_MAX_BYTES}")
    options = _options(url, parts.query, ("db",))
    user, password = _login(parts)
    return Address(scheme="unix", path=path, db=_db(url, options.get("db", "")), user=user, password=password)


def _login(parts: SplitResult) -> tuple[str | None, str | None]:
    user = unquote(parts.username) if parts.username else None
    password = None if parts.password is None else unquote(parts.password)
    return user, password


def _db(url: str, text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise _bad(url, f"has {text!r} where a database number belongs")
    return int(text)


def _options(url: str, query: str, allowed: tuple[str, ...]) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in allowed:
            known = f"it takes {', '.join(allowed)}" if allowed else "it takes none"
            hint = "; TLS options need rediss:// or valkeys://" if name in TLS_OPTIONS and not allowed else ""
            raise _bad(url, f"has an unknown option {name!r}: {known}{hint}")
        if not value or name in options:
            raise _bad(url, f"must give option {name!r} once, with a value")
        options[name] = value
    return options


def _bad(url: str, problem: str) -> BadAddress:
    # The URL may be broken in any way, so its login is cut out of the text, up to the last '@'.
    shown = re.sub(r"^([a-z]*:/*).*@", r"\1***@", url, flags=re.IGNORECASE | re.DOTALL)
    return BadAddress(f"store address {shown!r} {problem}")
