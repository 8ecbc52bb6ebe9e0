"""Refusals over HTTP: RFC 9457 problem documents with a stable `code`.

`code` is for programs and never changes its meaning; `detail` is one sentence for people with the resource, the numbers
and the remedy. The numbers are members of their own as well, so that no program has to parse a sentence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from dhsched.errors import (
    BadId,
    BadSetting,
    BadValue,
    Banned,
    DhschedError,
    Forbidden,
    OverQuota,
    StoreIncompatible,
    StoreOverloaded,
    StoreRefused,
    StoreUnavailable,
    TooManyRequests,
    Unauthorized,
    Unbounded,
)

MEDIA_TYPE = "application/problem+json"


class Kind(NamedTuple):
    """The properties of all problems with one code. `retry_after_s` is set if trying again later may help."""

    status: int
    title: str
    retry_after_s: int | None = None


PROBLEMS: dict[str, Kind] = {
    "BAD_REQUEST": Kind(400, "The request is malformed"),
    "UNAUTHORIZED": Kind(401, "No valid key or token"),
    "FORBIDDEN": Kind(403, "The key or token does not allow this"),
    "ORIGIN": Kind(403, "A page of another origin may not call this"),
    "HOST": Kind(403, "This listener does not answer to this host name"),
    "NOT_FOUND": Kind(404, "The resource does not exist"),
    "METHOD": Kind(405, "The method is not allowed here"),
    "TIMEOUT": Kind(408, "The body did not arrive in time"),
    "BANNED": Kind(409, "The Worker name is banned"),
    "CLOSING": Kind(409, "The live takes no more input"),
    "CONFLICT": Kind(409, "The id is taken with other parameters"),
    "DRAINING": Kind(409, "The Worker is draining"),
    "GAP": Kind(409, "Items were left out"),
    "IN_USE": Kind(409, "The resource is in use"),
    "STALE": Kind(409, "The live or the term has moved on"),
    "UNPLACEABLE": Kind(409, "The Worker takes no new lives"),
    "ENDED": Kind(410, "The live has ended"),
    "TOO_LARGE": Kind(413, "The body is too large"),
    "MEDIA_TYPE": Kind(415, "The body is of another media type"),
    "NO_ELIGIBLE_POOL": Kind(422, "No Pool may take this live"),
    "NO_SUCH_POOL": Kind(422, "The Pool does not exist"),
    "UNBOUNDED": Kind(422, "The key, or the lives to end, would have no bounds"),
    "TOO_MANY_PENDING": Kind(429, "The live's queue is full", 1),
    "TOO_MANY_PRODUCERS": Kind(429, "The live has too many producers", 60),
    "QUOTA": Kind(429, "The tenant has reached one of its limits", 5),
    "RATE_LIMITED": Kind(429, "The key is used too often", 1),
    "INTERNAL": Kind(500, "A bug in dhsched"),
    "BUSY": Kind(503, "This replica is at its limit", 1),
    "FULL": Kind(503, "No Worker has a free slot", 5),
    "NOT_READY": Kind(503, "This replica is not ready", 1),
    "STARTING": Kind(503, "Workers with a free slot are starting as many lives as they may", 1),
    "STORE_UNAVAILABLE": Kind(503, "The store cannot be reached", 1),
    "WAITING": Kind(503, "Lives that lost their Worker go first", 2),
    "STORE_FULL": Kind(507, "The store is out of memory", 5),
}
"""Every code, in the order of its status. Clients may rely on these codes; docs/reference/api.md lists them."""


class Problem(DhschedError):
    """A refusal with a code of PROBLEMS. `numbers` become members of the document."""

    def __init__(self, code: str, detail: str, *, retry_after_s: int | None = None, **numbers: Any) -> None:
        super().__init__(detail)
        self.code = code
        self.kind = PROBLEMS[code]
        self.detail = detail
        self.retry_after_s = self.kind.retry_after_s if retry_after_s is None else retry_after_s
        self.numbers = numbers

    def document(self) -> dict[str, Any]:
        return {
            "type": f"urn:dhsched:problem:{self.code}",
            "title": self.kind.title,
            "status": self.kind.status,
            "code": self.code,
            "detail": self.detail,
            **self.numbers,
        }

    def response(self, request_id: str = "") -> web.Response:
        headers = {"Content-Type": MEDIA_TYPE}
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        if self.code == "METHOD":
            headers["Allow"] = ", ".join(self.numbers.get("allowed", ()))
        if self.code == "UNAUTHORIZED":
            headers["WWW-Authenticate"] = "Bearer"
        if request_id:
            headers["X-Request-Id"] = request_id
        response = web.Response(status=self.kind.status, body=msgspec.json.encode(self.document()), headers=headers)
        if self.code == "TIMEOUT":
            response.force_close()  # The rest of the body would be taken for the next request.
        return response


def problem_from(error: Exception) -> Problem | None:
    """Return the problem to answer for an error of dhsched or of the HTTP server; None for an unexpected error."""
    match error:
        case Problem():
            return error
        case Unauthorized():
            return Problem("UNAUTHORIZED", str(error))
        case Forbidden():
            return Problem("FORBIDDEN", str(error))
        case TooManyRequests():
            return Problem("RATE_LIMITED", str(error), retry_after_s=error.retry_after_s)
        case Banned():
            return Problem("BANNED", str(error))
        case Unbounded():
            return Problem("UNBOUNDED", str(error))
        case OverQuota():
            return Problem("QUOTA", str(error), retry_after_s=error.retry_after_s, **error.numbers)
        case BadId() | BadValue() | BadSetting():
            return Problem("BAD_REQUEST", str(error))
        case StoreOverloaded():
            return Problem("BUSY", str(error))
        case StoreRefused(code="OOM"):
            return Problem("STORE_FULL", f"{error}; end lives, or give the store more memory")
        case StoreUnavailable():
            return Problem("STORE_UNAVAILABLE", str(error), unknown=error.unknown)
        case StoreRefused() | StoreIncompatible():
            return Problem("STORE_UNAVAILABLE", str(error))
        case web.HTTPRequestEntityTooLarge():
            return Problem("TOO_LARGE", "the body is too large; send less at once")
        case web.HTTPException():
            return Problem("BAD_REQUEST", f"the request cannot be served: {error.reason}")
    return None


def problem_of(error: Exception) -> Problem:
    """Return the problem for any error: INTERNAL for one that `problem_from` does not know."""
    return problem_from(error) or Problem("INTERNAL", str(error))


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a problem document, for OpenAPI."""
    return {
        "title": "Problem",
        "description": "RFC 9457. `code` is stable; further members carry the numbers.",
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "code": {"type": "string", "enum": list(PROBLEMS)},
            "detail": {"type": "string"},
        },
        "required": ["type", "title", "status", "code", "detail"],
    }
