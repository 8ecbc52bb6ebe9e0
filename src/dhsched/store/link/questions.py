"""A short connection for a few questions: to a host that may be the primary, or to a Sentinel.

The answers are RESP2, which every version knows. A link's own connection is a Wire, which begins with the greeting; a
server that is only asked must not get one.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import hiredis

from dhsched.errors import StoreError, StoreIncompatible, StoreRefused, StoreUnavailable
from dhsched.store.link.address import Host
from dhsched.store.link.dial import tune
from dhsched.store.link.wire import NOTHING, Arg, pack

ANSWER_MAX_BYTES = 1024 * 1024  # A peer that sends more than this is left.
READ_BYTES = 65_536
SHOWN_CHARS = 120  # An error cuts off the rest of a longer reply.

T = TypeVar("T")


class Questions:
    """One connection: `ask` sends a command and returns its answer, `next` returns what comes without a question."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = hiredis.Reader(notEnoughData=NOTHING)

    async def ask(self, *command: Arg) -> Any:
        """Return the answer to one command. Raise StoreRefused if it is an error."""
        self._writer.write(pack(command))
        if isinstance(answer := await self.next(), hiredis.ReplyError):
            raise _refused(str(answer))
        return answer

    async def next(self) -> Any:
        """Return the next message of the peer. Raise StoreUnavailable when there are no more."""
        size_bytes = 0
        while (answer := self._parser.gets()) is NOTHING:
            data = await self._reader.read(READ_BYTES)
            size_bytes += len(data)
            if not data or size_bytes > ANSWER_MAX_BYTES:
                raise StoreUnavailable(
                    "it closed the connection" if not data else "its answer is endless", unknown=False
                )
            self._parser.feed(data)
        return answer


@asynccontextmanager
async def connected(
    host: Host, tls: ssl.SSLContext | None, *, user: str | None, password: str | None, silent_s: float
) -> AsyncIterator[Questions]:
    """Connect to one host and log in, and disconnect when the block is left."""
    reader, writer = await asyncio.open_connection(host.name, host.port, ssl=tls)
    try:
        tune(writer.get_extra_info("socket"), silent_s)
        questions = Questions(reader, writer)
        if user is not None or password is not None:
            await questions.ask("AUTH", user or "default", password or "")
        yield questions
    finally:
        writer.transport.abort()


async def within(limit_s: float | None, asking: Awaitable[T]) -> T | StoreError:
    """Return the result, or the error that says in a few words why there is none. The words name no host."""
    try:
        async with asyncio.timeout(limit_s):
            return await asking
    except TimeoutError:
        return StoreUnavailable("no answer" + (f" within {limit_s:.2g} s" if limit_s else ""), unknown=False)
    except StoreError as error:
        return error
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or str(error)
        return StoreIncompatible(f"no TLS ({reason})")
    except ConnectionError as error:
        return StoreUnavailable(os.strerror(error.errno) if error.errno else str(error), unknown=False)
    except OSError as error:
        return StoreUnavailable(error.strerror or str(error), unknown=False)
    except (hiredis.ProtocolError, ValueError, TypeError, KeyError, IndexError, AttributeError):
        return StoreIncompatible("its answer is not that of a Valkey or Redis server")


def nobody(what: str, hosts: Sequence[Host], reasons: Iterable[str | StoreError], remedy: str) -> StoreError:
    """Return the error for a search that found nothing: one sentence with each host and its reason.

    The error is StoreRefused or StoreIncompatible if every host is at fault in a way that does not pass by itself.
    """
    found = [*reasons]
    each = "; ".join(f"{host}: {reason}" for host, reason in zip(hosts, found, strict=True))
    message = f"{what} ({each}): {remedy}"
    if found and all(isinstance(reason, StoreRefused) for reason in found):
        return StoreRefused(message, code=next(reason.code for reason in found if isinstance(reason, StoreRefused)))
    if found and all(isinstance(reason, StoreIncompatible) for reason in found):
        return StoreIncompatible(message)
    return StoreUnavailable(message, unknown=False)


def _refused(reply: str) -> StoreRefused:
    # An unknown command is quoted with its arguments, and AUTH has the password among them.
    shown = " ".join(reply.partition(", with args")[0].split())[:SHOWN_CHARS]
    return StoreRefused(shown, code=reply.split(" ", 1)[0], reply=shown)
