"""A TCP port that is passed on to another address: `python -m tests.peers.passing IP PORT TARGET_IP`."""

from __future__ import annotations

import asyncio
import contextlib
import sys


async def serve(host: str, port: int, target: str) -> None:
    async def both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection(target, port)
            await asyncio.gather(one(reader, back), one(there, writer))

    async def one(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        sink.close()

    server = await asyncio.start_server(both, host, port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    from dhsched.local.child import follow_parent

    follow_parent()
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
