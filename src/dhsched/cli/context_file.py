"""Contexts: the deployments that this user's verbs call, by name, in a file that only this user can read.

A value is taken from the flag, else from the environment, else from the context, else from the default. The context is
the one that `--context` names, else DHSCHED_CONTEXT, else the one that `dhsched context use` has chosen. The key of a
context goes only to the addresses of that context, never to an address that a flag or a variable gives.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dhsched.access.key_file import home, origin, replacing
from dhsched.client.credentials import KEY, KEY_FILE, TENANT, TLS_CA, find_key
from dhsched.errors import BadValue, DhschedError

CONTEXT = "DHSCHED_CONTEXT"
VARIABLES = {"url": ("DHSCHED_URL",), "infer": ("DHSCHED_INFER",), "room_url": ("DHSCHED_ROOM",)} | {
    "key": (KEY, KEY_FILE),
    "key_file": (KEY_FILE, KEY),
    "ca": (TLS_CA,),
    "tenant": (TENANT,),
}
"""The environment variables that win over each value of a context."""


@dataclass(frozen=True, slots=True)
class Context:
    """One deployment. An empty value is not given. `key` is an API key, `key_file` a file that contains one."""

    url: str = ""
    infer: str = ""
    room_url: str = ""
    key: str = ""
    key_file: str = ""
    ca: str = ""
    tenant: str = ""

    def options(self) -> dict[str, str]:
        """Return the values of this context that are options of verbs."""
        return {name: value for name in ("url", "infer", "room_url") if (value := getattr(self, name))}

    def key_at(self, url: str) -> str:
        """Return the key for this server; empty if the context has none, or not for this server."""
        known = {origin(each.strip()) for each in f"{self.url},{self.infer}".split(",") if each.strip()}
        if origin(url) not in known or not self.key_file:
            return self.key if origin(url) in known else ""
        from dhsched.settings import read_secret  # Late: most contexts have no such file.

        return read_secret(Path(self.key_file), "the key_file of the context")


@dataclass(slots=True)
class Contexts:
    """All contexts, and the name of the one that is used unless another is named; empty if none is."""

    named: dict[str, Context]
    current: str = ""

    def get(self, name: str) -> Context:
        if name not in self.named:
            known = f"known are {', '.join(sorted(self.named))}" if self.named else "there is none"
            raise BadValue(f"there is no context {name} ({known}); make it with `dhsched context set {name} --url URL`")
        return self.named[name]


def path_of_contexts() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else home() / ".config") / "dhsched" / "contexts.json"


def read_contexts() -> Contexts:
    """Return the contexts in the file; none if there is no file."""
    path = path_of_contexts()
    try:
        with path.open() as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise DhschedError(f"other users can read {path}, where keys may be: run chmod 600 {path}")
            found: Any = json.load(file)
        return Contexts({name: Context(**values) for name, values in found["contexts"].items()}, found["current"])
    except FileNotFoundError:
        return Contexts({})
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DhschedError(f"cannot read the contexts in {path} ({error}); correct or remove the file") from None


@contextlib.contextmanager
def changing() -> Iterator[Contexts]:
    """Yield the contexts in the file, and write what the block makes of them."""
    contexts = read_contexts()
    yield contexts
    path = path_of_contexts()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path) as out:
            named = {
                name: {k: v for k, v in asdict(each).items() if v} for name, each in sorted(contexts.named.items())
            }
            json.dump({"current": contexts.current, "contexts": named}, out, indent=2)
    except OSError as error:
        raise DhschedError(f"cannot write the contexts to {path} ({error.strerror}); check the folder") from None


# -- the context of this call

_named = ""  # By --context.


def choose(name: str) -> None:
    """Use the context of this name for the rest of this call; without a name, the environment or the file chooses.
    Raise BadValue if variables overrule values of the context: the verb would call another deployment."""
    global _named
    _named = name
    if not name:
        return
    found = read_contexts().get(name)
    for field, variables in VARIABLES.items():
        for variable in variables:
            if getattr(found, field) and os.environ.get(variable, getattr(found, field)) != getattr(found, field):
                raise BadValue(f"--context {name} was given, but {variable} is set and wins over its {field}: unset it")


def chosen() -> Context:
    """Return the context of this call; one without values if none is chosen."""
    name = _named or os.environ.get(CONTEXT, "")
    contexts = read_contexts()
    return contexts.get(name) if name else contexts.named.get(contexts.current, Context())


def key_at(url: str) -> str:
    """Return the key that verbs use at this server: of the environment, of the context, or of the key file."""
    if os.environ.get(KEY) or os.environ.get(KEY_FILE):
        return find_key(url)
    return chosen().key_at(url) or find_key(url)


def authority() -> str:
    """Return the PEM file that verbs trust beside the usual authorities; empty for none."""
    return os.environ.get(TLS_CA) or chosen().ca


def tenant() -> str:
    """Return the tenant that verbs name; empty for the key's own."""
    return os.environ.get(TENANT) or chosen().tenant


def updated(context: Context, given: dict[str, str]) -> Context:
    """Return the context with the given values. A key replaces a key file, and the other way round."""
    if given.get("key") and given.get("key_file"):
        raise BadValue("--key and --key-file were both given; give one of them")
    if given.get("key") or given.get("key_file"):
        given = {**given, "key_file" if given.get("key") else "key": ""}
    return replace(context, **given)
