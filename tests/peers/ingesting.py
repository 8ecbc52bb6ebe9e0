"""A WHIP ingest in the network namespace of this process: `python -m tests.peers.ingesting IP PORT`.

It prints, as JSON, what it has been shown and from which address, a few times a second.
"""

from __future__ import annotations

import asyncio
import json
import sys

from tests.harness.ingest import Ingest, running


async def main(host: str, port: int) -> None:
    ingest = Ingest()
    async with running(ingest, port, host):
        print("ready", flush=True)
        while True:
            await asyncio.sleep(0.2)
            for number, shown in enumerate(ingest.all):
                said = {"connection": number, "pictures": len(shown.pictures), "from": shown.remote_address()}
                print(json.dumps({**said, "epoch": next((n for n in (1, 2, 3) if shown.shows(n)), 0)}), flush=True)


if __name__ == "__main__":
    from dhsched.local.child import follow_parent

    follow_parent()
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
