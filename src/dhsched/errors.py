"""Every error that dhsched raises on purpose.

DhschedError
  BadId                an id that is empty, too long, or has characters that an id cannot have
  BadSetting           a setting whose value cannot be
  BadValue             an argument of a step that is of the wrong kind or out of range
  BadAddress           the URL of the store or of a server cannot be understood or used
  Unauthorized         nothing was shown that we know
  Forbidden            known, and not allowed this
  TooManyRequests      allowed, and too often
  NotMinted            a server minted no token for our key
    KeyRefused         it does not know our own key, or does not allow us what we are there for
  Refused              a server's answer is no; `code` says why
  Unreachable          no replica answered in time; `unknown` says whether the call may have been done
  BadToken             a token that we did not sign, or whose time is over
  DeviceBusy           another Worker runs on this device
  ChildFailed          the child of a live ended although its live goes on
  Problem              what a server refuses, with a code of the API (web/problems.py)
  StoreError           something about the store
    StoreUnavailable   unreachable, lost, or silent past the deadline; `unknown` says whether the operation may have run
    StoreRefused       the server answered with an error; `code` is its first word (OOM, READONLY, NOPERM, ...)
    StoreIncompatible  no server that we can work with: wrong version, wrong schema, no TLS, or no store at all
    StoreOverloaded    we have more in flight than we allow ourselves; nothing was sent
    ServerNotStarted   the server that we run ourselves did not start

Losing a race is not an error: expected results are values (`ownership/outcomes.py`). A message is one sentence that
names the store (never its password), the numbers, and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class DhschedError(Exception):
    """The root: a command line prints its message alone, without a traceback."""


class BadId(DhschedError, ValueError):
    """An id that is empty, too long, or has characters that an id cannot have."""


class BadSetting(DhschedError, ValueError):
    """A setting whose value cannot be."""


class BadValue(DhschedError, ValueError):
    """An argument of a step that is of the wrong kind or out of range."""


class BadAddress(DhschedError):
    """The URL of the store or of a server cannot be understood or used."""


class Unauthorized(DhschedError):
    """Nothing was shown that we know. The message is the same for every reason."""


class Forbidden(DhschedError):
    """The caller is known, and not allowed this."""


class TooManyRequests(DhschedError):
    """The caller is allowed this, and asks too often."""

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotMinted(DhschedError):
    """A server minted no token for our key. `code` says whether it, or another one, might: NOT_READY is no verdict."""

    def __init__(self, message: str, *, code: str = "UNAUTHORIZED", status: int = 401) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class KeyRefused(NotMinted):
    """A server does not know our own key, or does not allow us what we are there for. Asking again changes nothing."""


class Refused(DhschedError):
    """A server's answer is no. `code` is stable; `problem` has the numbers."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        self.status = status
        self.code = str(problem.get("code", status))
        self.problem = dict(problem)
        self.retry_after_s = retry_after_s
        super().__init__(f"{problem.get('detail') or f'the server answered {status}'} ({self.code})")


class Unreachable(DhschedError):
    """No replica answered in time. Whether the call was done is not known: its id makes a repetition safe.

    `troubles` has what was wrong at each replica that was asked; `refused` is the last answer, if one said that it
    cannot serve now. `unknown` is true when the call may not be repeated and may have been done.
    """

    def __init__(
        self,
        message: str,
        troubles: Mapping[str, str] | None = None,
        *,
        unknown: bool = False,
        refused: Refused | None = None,
    ) -> None:
        super().__init__(message)
        self.troubles = dict(troubles or {})
        self.unknown = unknown
        self.refused = refused


class BadToken(DhschedError):
    """A token that we did not sign, or whose time is over."""


class DeviceBusy(DhschedError):
    """Another Worker runs on this device."""


class ChildFailed(DhschedError):
    """The child of a live ended although its live goes on."""


class StoreError(DhschedError):
    """Something about the store."""


class StoreUnavailable(StoreError):
    """The store is unreachable, was lost, or was silent past the deadline.

    `unknown` is true when the operation was sent and may therefore have run: repeat it with the same operation id,
    never take it for failed. It is false when nothing of it left this process.
    """

    def __init__(self, message: str, *, unknown: bool) -> None:
        super().__init__(message)
        self.unknown = unknown


class StoreRefused(StoreError):
    """The server answered with an error. `code` is its first word, `reply` is all of it."""

    def __init__(self, message: str, *, code: str, reply: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reply = reply


class StoreIncompatible(StoreError):
    """No server that we can work with: wrong version, wrong schema, no TLS where asked, or no store at all."""


class StoreOverloaded(StoreError):
    """The bound on calls or bytes in flight is reached: the operation was not sent."""


class ServerNotStarted(StoreError):
    """The server that we run ourselves did not start; the message carries the end of its log."""
