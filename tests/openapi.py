"""`python -m tests.openapi FOLDER` writes the OpenAPI documents of Dispatch and of the room, without a deployment.

The TypeScript package makes its types from them. Its tests compare the document of Dispatch with what a replica serves.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import msgspec

from dhsched import __version__
from dhsched.dispatch.app import Replica
from dhsched.input_routes import INPUT
from dhsched.room import viewing
from dhsched.web.endpoints import Operation
from dhsched.web.openapi import document

NONE = cast(Any, None)  # Endpoints use their context only when they are called.


def documents() -> dict[str, dict[str, Any]]:
    """Return the document of each role."""
    served: dict[str, list[Operation]] = {
        "dispatch": [*Replica(NONE).endpoints(), *INPUT],
        "room": [*viewing.endpoints(NONE)],
    }
    return {role: document(f"dhsched {role}", __version__, operations) for role, operations in served.items()}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for role, made in documents().items():
        (folder / f"{role}.json").write_bytes(msgspec.json.format(msgspec.json.encode(made)) + b"\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
