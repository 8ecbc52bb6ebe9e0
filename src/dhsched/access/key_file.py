"""The key file: development keys of this user on this machine, by the address at which they are good.

    http://127.0.0.1:7400   the key to show there, while a replica of this user listens
    key:<id>                a key that was made here, so that the same data is found open again

Several processes write it, so each change is made under a lock, and put in place as a whole.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from dhsched.access.api_keys import id_of
from dhsched.errors import DhschedError

ENTRIES_MAX = 128  # The oldest are forgotten: whoever was killed has left his behind.
KEPT = "key:"


class KeyFile:
    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        folder = environment.get("XDG_STATE_HOME")
        self.path = (Path(folder) if folder else home() / ".local" / "state") / "dhsched" / "development-keys.json"

    def get(self, url: str) -> str:
        return self._read().get(origin(url), "")

    def put(self, keys: Mapping[str, str]) -> None:
        """These keys are good at these addresses."""
        new = {origin(url): key for url, key in keys.items()}
        with self._changing() as entries:
            for name in new:
                entries.pop(name, None)  # What is said anew is the newest.
            entries.update(new)

    def drop(self, keys: Mapping[str, str]) -> None:
        """Forget these addresses, unless another deployment has taken them since."""
        gone = {origin(url): key for url, key in keys.items()}
        with self._changing() as entries:
            for name in [name for name, key in entries.items() if gone.get(name) == key]:
                del entries[name]

    def keep(self, key: str) -> None:
        """A key that was just made, wherever it will be good."""
        with self._changing() as entries:
            entries[KEPT + id_of(key)] = key

    def kept(self) -> list[str]:
        """The keys that were made here, the newest first."""
        return [key for name, key in reversed(self._read().items()) if name.startswith(KEPT)]

    def forget(self, key: str) -> None:
        """It is good nowhere any more."""
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
        import fcntl  # Late: reading works also where there is none.

        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with opened(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # Held for a moment, by processes of this user: no need to give up.
                entries = self._read()
                yield entries
                newest = dict([*entries.items()][-ENTRIES_MAX:])
                new = self.path.with_suffix(f".{os.getpid()}")
                with opened(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file, open(file, "w", closefd=False) as out:
                    json.dump(newest, out)
                new.replace(self.path)
        except OSError as error:
            raise DhschedError(
                f"cannot write {self.path} ({error.strerror}), where the development key goes; set XDG_STATE_HOME to a "
                "folder of yours, or say --access open"
            ) from None


@contextlib.contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """A file for this user alone from its first byte on, and no link to another one."""
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def home() -> Path:
    """This user's; in a container it may have none, and then there are no development keys."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def origin(url: str) -> str:
    """Scheme, host and port. All names of this machine are one: people type any of them."""
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname in ("localhost", "::1") else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
