"""A whole deployment in the network namespace of this process: `python -m tests.peers.inside FOLDER ROOM_OPTION...`

Its ready line has a link to the page of the live `demo`. A line `kill` kills the Worker on air, `end` ends the live;
the end of the input ends it all.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.browser.watching import stage


async def main(folder: Path, *options: str) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with stage(None, folder, room=options) as at:
        await at.until_epoch(1)
        print(f"room listens on {await at.link()}", flush=True)
        async for line in reader:
            if line == b"kill\n":
                at.owner(await at.live()).kill()
            elif line == b"end\n":
                await at.fleet.post(f"{at.fleet.dispatch[0]}/v1/lives/demo/end")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
