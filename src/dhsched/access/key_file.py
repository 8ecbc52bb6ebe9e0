"""The key file: development keys of this user on this machine, by the address at which they are valid.

    http://127.0.0.1:7400   the key for that address, while a replica of this user listens there
    key:<id>                a key that was made here, so that a restart on the same data finds it

Several processes write the file: each change is made under a lock and replaces the whole file.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from dhsched.access.api_keys import id_of
from dhsched.errors import DhschedError

ENTRIES_MAX = 128  # Past this many entries the oldest are dropped: a killed process leaves its entry behind.
KEPT = "key:"


class KeyFile:
    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        folder = environment.get("XDG_STATE_HOME")
        self.path = (Path(folder) if folder else home() / ".local" / "state") / "dhsched" / "development-keys.json"

    def get(self, url: str) -> str:
        return self._read().get(origin(url), "")

    def put(self, keys: Mapping[str, str]) -> None:
        """Write the key of each address."""
        new = {origin(url): key for url, key in keys.items()}
        with self._changing() as entries:
            for name in new:
                entries.pop(name, None)  # Moves a rewritten entry to the end, as the newest.
            entries.update(new)

    def drop(self, keys: Mapping[str, str]) -> None:
        """Remove these addresses, except those that have another key by now, of another deployment."""
        gone = {origin(url): key for url, key in keys.items()}
        with self._changing() as entries:
            for name in [name for name, key in entries.items() if gone.get(name) == key]:
                del entries[name]

    def keep(self, key: str) -> None:
        """Write a new key under its id."""
        with self._changing() as entries:
            entries[KEPT + id_of(key)] = key

    def kept(self) -> list[str]:
        """Return the keys that `keep` wrote, the newest first."""
        return [key for name, key in reversed(self._read().items()) if name.startswith(KEPT)]

    def forget(self, key: str) -> None:
        """Remove every entry of this key."""
        with self._changing() as entries:
            for name in [name for name, found in entries.items() if found == key]:
                del entries[name]

    def _read(self) -> dict[str, str]:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self.path.read_text())
            if isinstance(found, dict):
                return {str(name): str(key) for name, key in found.items()}
        return {}

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, str]]:
        import fcntl  # Late: a platform without it can still read the file.

        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with opened(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # Held only briefly, by processes of this user: no time limit.
                entries = self._read()
                yield entries
                newest = dict([*entries.items()][-ENTRIES_MAX:])
                with replacing(self.path) as out:
                    json.dump(newest, out)
        except OSError as error:
            raise DhschedError(
                f"cannot write the development key to {self.path} ({error.strerror}); set XDG_STATE_HOME to a folder "
                "that you can write, or give --access open"
            ) from None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """Yield a new file that only this user can read. When the block ends it becomes `path`, whole; after an error the
    file at `path` stays as it was."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with opened(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file, open(file, "w", closefd=False) as out:
            yield out
            out.flush()
            os.fsync(file)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """Open a file that only this user can read from its creation on; fail on a symbolic link."""
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def home() -> Path:
    """Return this user's home; a path that does not exist if the user has none, as in some containers."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def origin(url: str) -> str:
    """Return scheme, host and port of a URL; localhost and ::1 become 127.0.0.1, because users type any of them."""
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname in ("localhost", "::1") else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
