"""Steady input from an application of either version: `python tests/upgrade/load.py DISPATCH_URLS LIVE,LIVE,...`.

Only the public client is used, and only what both versions have. Each line that is printed is the text of an item that
was accepted. The program pushes until it gets SIGTERM, then prints `done`; any error ends it.
"""

import asyncio
import signal
import sys

from dhsched.client import Client

EVERY_S = 0.1


async def main(dispatch: str, lives: list[str]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Client(dispatch.split(",")) as client:
        for live in lives:
            await client.create("anna", live_id=live, wait_s=30)
        number = 0
        while not stop.is_set():
            number += 1
            for live in lives:
                await client.push(live, f"{live} {number}", boundary=True)
                print(f"{live} {number}", flush=True)
            await asyncio.sleep(EVERY_S)
    print("done", flush=True)


asyncio.run(main(sys.argv[1], sys.argv[2].split(",")))
