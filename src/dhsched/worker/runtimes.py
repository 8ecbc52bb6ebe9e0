"""Runtimes: the coroutines that serve lives. Three are built in, others are named `package.module:function`.

`echo` prints what it consumes as NDJSON, one object per line with the live, its generation and the item's number, for
the quickstart and the tests. `null` consumes and prints nothing, for load. `avatar` speaks, with a face; it needs the
extra of that name, and is loaded only when requested.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

from dhsched.errors import BadSetting
from dhsched.worker.session import Session

Runtime = Callable[[Session], Awaitable[None]]


async def echo(session: Session) -> None:
    """Print each consumed item. The saved state counts the items that this live has consumed, over all generations."""
    say(session, "open", seen=seen_by(session), config=session.config)
    async for item in session.inputs():
        # Read the count here, not above: another generation may have gone on since this one was prepared.
        seen = seen_by(session) + 1
        say(session, item.kind, seq=item.seq, text=item.text, boundary=item.boundary, seen=seen)
        session.state = str(seen).encode()
    say(session, "close", seen=seen_by(session))


def seen_by(session: Session) -> int:
    state = session.state
    return int(state) if isinstance(state, bytes) and state.isdigit() else 0


def say(session: Session, event: str, **fields: Any) -> None:
    generation = session.generation
    line = {"live": session.live, "worker": generation.worker, "epoch": generation.epoch, "event": event, **fields}
    # One write per line: several Workers may share one terminal or file.
    os.write(sys.stdout.fileno(), (json.dumps(line) + "\n").encode())


async def null(session: Session) -> None:
    """Consume all input and do nothing else."""
    async for _ in session.inputs():
        pass


BUILT_IN: dict[str, Runtime] = {"echo": echo, "null": null}
AVATAR = "avatar"
AVATAR_MODULE = "dhsched.avatar.runtime"
AVATAR_NEEDS = ("av", "cv2", "espeakng_loader", "numpy")


def load_runtime(name: str) -> Runtime:
    """Return a built-in runtime, or import the function that `package.module:function` names."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name == AVATAR:
        missing = [module for module in AVATAR_NEEDS if importlib.util.find_spec(module) is None]
        if missing:
            raise BadSetting(
                f"runtime avatar needs modules that are missing ({', '.join(missing)}): pip install 'dhsched[avatar]'"
            )
        # Imported by name: the avatar imports this package, which must not import the avatar.
        return cast(Runtime, importlib.import_module(AVATAR_MODULE).avatar)
    if ":" not in name:
        raise BadSetting(
            f"runtime {name!r} is neither built in ({', '.join((*BUILT_IN, AVATAR))}) "
            "nor of the form package.module:function"
        )
    found = load_function("runtime", name)
    if not inspect.iscoroutinefunction(found):
        function = name.partition(":")[2]
        raise BadSetting(f"runtime {name!r} is not an async function; write `async def {function}(session): ...`")
    return cast(Runtime, found)


def load_function(what: str, name: str) -> Callable[..., Any]:
    """Import the function that `package.module:function` names; `what` it is for is named in errors."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise BadSetting(f"{what} {name!r} is not of the form package.module:function")
    # The user's code is usually in the folder where the command is started.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BadSetting(f"{what} {name!r} cannot be loaded: {error}") from error
    if not callable(found):
        raise BadSetting(f"{what} {name!r} is not a function")
    return cast(Callable[..., Any], found)
