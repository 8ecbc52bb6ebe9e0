"""Which server a link connects to next. The simplest answer is here: the one host that the URL names."""

from collections.abc import Callable
from typing import NamedTuple

from dhsched.errors import StoreError
from dhsched.store.link.address import Address, Host

Leave = Callable[[str], None]
"""A callback that makes the link leave its connection, for the reason given, and find its server anew."""


class Seen(NamedTuple):
    """What one host of the URL answers, for people; and what to do about it, empty if it is as it should be."""

    host: Host
    words: str
    remedy: str = ""


class Finder:
    """Finds the server for one link. `searches` is true where there are several hosts to ask."""

    searches = False

    def __init__(self, address: Address) -> None:
        self.address = address

    async def find(self) -> Address:
        """Return the server to connect to now. Raise a StoreError that names every host and why it is not the one."""
        return self.address

    def used(self, server: Address) -> None:
        """Note that the link is connected to this server."""

    def failed(self, server: Address, error: StoreError) -> None:
        """Note that this server, which `find` returned, could not be used, and complete the error's words."""

    async def watch(self, leave: Leave) -> None:
        """Call `leave` whenever the link should use another server; never return."""

    async def survey(self) -> list[Seen]:
        """Ask every host, and return what each of them answers."""
        return []


def reword(error: StoreError, before: str) -> None:
    """Put words before the message of an error."""
    error.args = (f"{before}{error}",)
