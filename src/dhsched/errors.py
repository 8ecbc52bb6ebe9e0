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
  StoreError           something about the store
    StoreUnavailable   unreachable, lost, or silent past the deadline; `unknown` says whether the operation may have run
    StoreRefused       the server answered with an error; `code` is its first word (OOM, READONLY, NOPERM, ...)
    StoreIncompatible  no server that we can work with: wrong version, wrong schema, no TLS, or no store at all
    StoreOverloaded    we have more in flight than we allow ourselves; nothing was sent
    ServerNotStarted   the server that we run ourselves did not start

Losing a race is not an error: expected results are values (`ownership/outcomes.py`). A message is one sentence that
names the store (never its password), the numbers, and what to do.
"""


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
