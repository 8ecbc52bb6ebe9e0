"""Every error that dhsched raises on purpose.

DhschedError
  BadId                an id is empty, too long, or has characters that ids may not have
  BadSetting           a setting has a value that is not allowed
  BadValue             an argument has the wrong type or is out of range
    Banned             the Worker's name is banned
    Unbounded          a key would be for more than its maker has said
  TooManyEmits         a runtime emits faster than its messages are stored
  BadAddress           the URL of the store or of a server cannot be parsed or used
  Unauthorized         the request has no valid token
  Forbidden            the caller is known, but not allowed to make this request
  TooManyRequests      the caller makes too many requests
  OverQuota            the caller's tenant has reached one of its limits
  NotMinted            a server minted no token for this process's key
    KeyRefused         the server does not know the key, or the key's role does not allow what the process does
  Refused              a server refused the request; `code` says why
  Unreachable          no replica answered in time; `unknown` says whether the call may have been done
  BadToken             a token has expired, or was not signed by this cell
  DeviceBusy           another Worker runs on this device
  ChildFailed          the child process of a live ended although the live goes on
  BotEnded             the Pipecat pipeline of a live ended, or did not start, although the live goes on
  SetupFailed          the setup of a Worker's runtime raised an error, before the Worker registered
  RuntimeFailed        a runtime under test ended although its live goes on, or did not end with it
  Problem              a server's refusal, with a code of the API (web/problems.py)
  StoreError           an error of the store
    StoreUnavailable   unreachable, lost, or silent past the deadline; `unknown` says whether the operation may have run
      CellAway         the store of one cell of several has been away for a while: nobody waits for it
    StoreRefused       the store answered with an error; `code` is its first word (OOM, READONLY, NOPERM, ...)
    StoreIncompatible  the server cannot be used: wrong version, wrong schema, no TLS, or not a store
    StoreOverloaded    the limit on calls or bytes in flight is reached; nothing was sent
    ServerNotStarted   the embedded store server did not start

Losing a race is not an error: expected results are values (`ownership/outcomes.py`). A message is one sentence that
names the store (never its password), the numbers, and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class DhschedError(Exception):
    """Base of all errors below. The CLI prints only the message, without a traceback."""


class BadId(DhschedError, ValueError):
    """An id is empty, too long, or has characters that ids may not have."""


class BadSetting(DhschedError, ValueError):
    """A setting has a value that is not allowed."""


class BadValue(DhschedError, ValueError):
    """An argument has the wrong type or is out of range."""


class Banned(BadValue):
    """The Worker's name is banned."""


class Unbounded(BadValue):
    """A key would be for more than its maker has said."""


class TooManyEmits(DhschedError):
    """A runtime emits faster than its messages are stored: wait for `Session.emits_stored`, or emit less."""


class BadAddress(DhschedError):
    """The URL of the store or of a server cannot be parsed or used."""


class Unauthorized(DhschedError):
    """The request has no valid token. The message is the same for every reason."""


class Forbidden(DhschedError):
    """The caller is known, but not allowed to make this request. The gate says who: `caller`."""

    caller: Any = None


class TooManyRequests(DhschedError):
    """The caller makes too many requests; the next one may be made after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class OverQuota(DhschedError):
    """The tenant has reached its limit `quota`: `used` of `limit`; a later try after `retry_after_s` may succeed."""

    def __init__(self, message: str, *, tenant: str, quota: str, used: float, limit: float, retry_after_s: int) -> None:
        super().__init__(message)
        self.numbers = {"tenant": tenant, "quota": quota, "used": used, "limit": limit}
        self.retry_after_s = retry_after_s


class NotMinted(DhschedError):
    """A server minted no token for this process's key. `code` says why; with NOT_READY a retry may succeed."""

    def __init__(self, message: str, *, code: str = "UNAUTHORIZED", status: int = 401) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class KeyRefused(NotMinted):
    """A server does not know this process's key, or its role does not allow what the process does. Do not retry."""


class Refused(DhschedError):
    """A server refused the request. `code` is stable; `problem` is the whole answer, with its numbers. `unknown` is
    true when an earlier try of the same call may have been done."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        self.status = status
        self.code = str(problem.get("code", status))
        self.problem = dict(problem)
        self.retry_after_s = retry_after_s
        self.unknown = False
        super().__init__(f"{problem.get('detail') or f'the server answered {status}'} ({self.code})")


class Unreachable(DhschedError):
    """No replica answered in time.

    `troubles` maps each replica that was called to what went wrong there; `refused` is the last answer of a replica
    that could not serve. `unknown` is true when the call may have been done and is not safe to repeat.
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
    """A token has expired, or was not signed by this cell."""


class DeviceBusy(DhschedError):
    """Another Worker runs on this device."""


class ChildFailed(DhschedError):
    """The child process of a live ended although the live goes on."""


class BotEnded(DhschedError):
    """The Pipecat pipeline of a live ended, or did not start, although the live goes on."""


class SetupFailed(DhschedError):
    """The setup of a Worker's runtime raised an error, before the Worker registered."""


class RuntimeFailed(DhschedError):
    """A runtime under test (dhsched.testing) ended although its live goes on, or did not end with it."""


class StoreError(DhschedError):
    """Base of all errors of the store."""


class StoreUnavailable(StoreError):
    """The store is unreachable, was lost, or was silent past the deadline.

    `unknown` is true when the operation was sent and may therefore have run: repeat it with the same operation id,
    never assume that it failed. `unknown` is false when nothing of the operation left this process.
    """

    def __init__(self, message: str, *, unknown: bool) -> None:
        super().__init__(message)
        self.unknown = unknown


class CellAway(StoreUnavailable):
    """The store of one cell of several has been away for a while. The operation was not sent: to wait for it would hold
    up what is sent to other cells."""

    def __init__(self, message: str) -> None:
        super().__init__(message, unknown=False)


class StoreRefused(StoreError):
    """The store answered with an error. `code` is the first word of the answer, `reply` the whole answer."""

    def __init__(self, message: str, *, code: str, reply: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reply = reply

    @property
    def half_way(self) -> bool:
        """Whether a call of many rows ended at a row whose keys are damaged: the rows before that row have run, those
        behind it have not. A full store, for example, refuses before the first row."""
        return self.code in ("ERR", "WRONGTYPE")


class StoreIncompatible(StoreError):
    """The server cannot be used: wrong version, wrong schema, no TLS although the URL asks for it, or not a store."""


class StoreOverloaded(StoreError):
    """The limit on calls or bytes in flight is reached: the operation was not sent."""


class ServerNotStarted(StoreError):
    """The embedded store server did not start; the message has the end of its log."""
