"""Endpoints as data: one value has an operation's path, its types for decoding, its replies and its problems.

Decoding is strict, because a misspelt field that is silently ignored would be noticed only in production: unknown
fields, wrong types and repeated parameters are refused with the field's name. A handler runs only when all of its
request is valid.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from aiohttp import web

from dhsched.access.callers import OPEN, Caller
from dhsched.links.json_bounds import excess
from dhsched.web.problems import PROBLEMS, Problem

if TYPE_CHECKING:
    from dhsched.web.server import Service

JSON = "application/json"
BODY_BYTES_MAX = 64 * 1024  # A longer body is refused (TOO_LARGE).
WHOLE_NUMBERS_MAX = 64  # Whole numbers of one body that are written like 2.0; a body with more is refused.

Flag = Literal["0", "1", "false", "true"]
YES: frozenset[Flag] = frozenset({"1", "true"})
T = TypeVar("T")


class NoBody(msgspec.Struct, forbid_unknown_fields=True):
    """An empty body, or an empty object."""


class NoParameters(msgspec.Struct, forbid_unknown_fields=True):
    """No parameters."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response with a status or headers of its own; a handler's plain Struct is a 200."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Request:
    """One decoded request: `path`, `query` and `body` have the types that its endpoint names."""

    request: web.Request
    path: Any
    query: Any
    body: Any
    request_id: str
    service: Service
    caller: Caller = OPEN

    def header(self, name: str) -> str:
        """Return the value of a header that the endpoint declares; empty when the request does not have it."""
        return self.request.headers.get(name, "")


Handler = Callable[[Request], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class HeaderParameter:
    """A header that an endpoint reads."""

    name: str
    type: Any
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation, without its handler. `replies` are its successes by status (None: no body), `problems` its
    refusals by code."""

    name: str
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    summary: str
    replies: Mapping[int, Any]
    path_type: type[msgspec.Struct] = NoParameters
    query: type[msgspec.Struct] = NoParameters
    body: type[msgspec.Struct] | None = None
    headers: Sequence[HeaderParameter] = ()
    problems: Sequence[str] = ()
    tag: str = ""
    streams: Literal["", "WebSocket", "server-sent events"] = ""
    """What a success is instead of a reply: a connection that stays."""
    audited: bool = True
    """Whether each request is a line of the audit trail. Requests with GET never are."""

    def __post_init__(self) -> None:
        unknown = [code for code in self.problems if code not in PROBLEMS]
        if unknown:
            raise ValueError(f"endpoint {self.name} names problems that do not exist: {', '.join(unknown)}")
        in_path = set(re.findall(r"{(\w+)}", self.path))
        if in_path != set(self.path_type.__struct_fields__):
            raise ValueError(f"endpoint {self.name}: path {self.path} and {self.path_type.__name__} differ")

    @property
    def body_optional(self) -> bool:
        return self.body is not None and not required_fields(self.body)

    def all_problems(self) -> list[str]:
        """Return the codes of the endpoint's own problems and of those that every endpoint can answer."""
        common = {"BAD_REQUEST", "BUSY", "STORE_UNAVAILABLE", "INTERNAL"}
        access = {"UNAUTHORIZED", "FORBIDDEN", "RATE_LIMITED", "QUOTA", "ORIGIN", "HOST"}
        body = {"TIMEOUT", "TOO_LARGE"} if self.body is not None else set()
        return sorted({*self.problems, *common, *access, *body, *(["MEDIA_TYPE"] if self.method != "GET" else [])})

    def served_by(self, handler: Handler) -> Endpoint:
        """Return the endpoint that serves this operation with `handler`."""
        return Endpoint(**{each.name: getattr(self, each.name) for each in fields(self)}, handler=handler)

    def raw_route(self, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.RouteDef:
        """Return the raw route that serves this operation; its requests are not decoded."""
        return web.route(self.method, self.path, handler, name=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Operation):
    """An operation with the handler that serves it."""

    handler: Handler


class Decode:
    """The decoder of one endpoint's requests: made once, called for each request."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._path = endpoint.path_type if endpoint.path_type is not NoParameters else None
        self._query = endpoint.query
        self._headers = [(header.name, header.type) for header in endpoint.headers]
        self._body = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)
        self._empty_body = endpoint.body if endpoint.body is not None and endpoint.body_optional else None
        self._no_query = None if required_fields(endpoint.query) else endpoint.query()

    async def receive(self, request: web.Request, body_s: float) -> tuple[Any, Any, bytes | None]:
        """Return path, query and the body as it was sent; raise TIMEOUT if it is not complete after `body_s`."""
        if request.body_exists:
            if request.content_type != JSON:
                raise not_json(request.content_type)
            if "Content-Encoding" in request.headers:
                # A few bytes can inflate to a thousand times as many, so nothing is inflated (running.py).
                raise Problem("MEDIA_TYPE", "the body has a Content-Encoding; send it as it is")
        path = None if self._path is None else parameters(self._path, request.match_info, "the path")
        query = self._no_query
        if query is None or request.query_string:
            query = parameters(self._query, once(request), "the query")
        for name, kind in self._headers:
            if name in request.headers:
                parameters_header(name, kind, request.headers[name])
        return path, query, None if self._body is None else await self._read_body(request, body_s)

    async def _read_body(self, request: web.Request, body_s: float) -> bytes:
        # A body that announces too large a size is refused unread; one that announces none is cut off while it is read.
        if (request.content_length or 0) > BODY_BYTES_MAX:
            raise too_large(request.content_length or 0)
        try:
            return await body_in_time(request.read(), body_s)
        except web.HTTPRequestEntityTooLarge as error:
            raise too_large(BODY_BYTES_MAX + 1) from error

    def body(self, raw: bytes | None) -> Any:
        """Return the decoded body. Costs by its size."""
        decoder = self._body
        if raw is None or decoder is None:
            return None
        if not raw and self._empty_body is not None:
            return self._empty_body()
        if found := excess(raw):
            raise Problem("BAD_REQUEST", f"the body has {found}", field="$")
        try:
            try:
                return decoder.decode(raw)
            except msgspec.ValidationError:
                return decode_whole_numbers(raw, decoder.type)
        except msgspec.ValidationError as error:
            raise bad_field("the body", str(error)) from error
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise Problem("BAD_REQUEST", f"the body is not valid JSON: {error}", field="$") from error


async def body_in_time(reading: Awaitable[T], body_s: float) -> T:
    """Return the result of `reading` a body; raise TIMEOUT if the body is not complete after `body_s`."""
    try:
        async with asyncio.timeout(body_s):
            return await reading
    except TimeoutError:
        raise Problem(
            "TIMEOUT", f"the body was not complete after {body_s:g} s; send it faster, or send less", body_s=body_s
        ) from None
    except ConnectionError:
        raise Problem("TIMEOUT", "the caller disconnected before its body was complete") from None


_FLOAT_AT = re.compile(r"Expected `int(?: \| null)?`, got `float` - at `\$([^`]*)`")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


def decode_whole_numbers(raw: bytes, kind: Any) -> Any:
    """Decode a refused body once more, with 2.0 accepted as 2: for JSON Schema, 2.0 is a whole number.

    Only a body that would be refused otherwise comes here, so that other requests do not pay for this.
    """
    value = msgspec.json.decode(raw)
    for _ in range(WHOLE_NUMBERS_MAX):
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            found = _FLOAT_AT.search(str(error))
            steps = [name or int(index) for name, index in _STEP.findall(found[1])] if found else []
            if not steps:
                raise
            *way, last = steps
            holder = value
            for step in way:
                holder = holder[step]
            if not holder[last].is_integer():
                raise
            holder[last] = int(holder[last])
    return msgspec.convert(value, kind)


def parameters(kind: type[T], given: Mapping[str, str], where: str) -> T:
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise bad_field(where, str(error)) from error


def parameters_header(name: str, kind: Any, value: str) -> None:
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Problem("BAD_REQUEST", f"header {name} does not fit: {error}", field=name) from error


def once(request: web.Request) -> dict[str, str]:
    """Return the query's parameters; refuse a parameter that is given twice."""
    found: dict[str, str] = {}
    for name, value in request.query.items():
        if name in found:
            raise Problem("BAD_REQUEST", f"the query gives {name!r} twice; give it once", field=f"$.{name}")
        found[name] = value
    return found


_AT = re.compile(r" - at `(?:key in )?(\$[^`]*)`")
_NAMED = re.compile(r"(?:unknown|required) field `(.*?)`")


def bad_field(where: str, message: str) -> Problem:
    """Return a problem with msgspec's message, and with the field's path as a member of its own."""
    at = _AT.search(message)
    path = at[1] if at else "$"
    named = _NAMED.search(message)
    if named:
        path = f"{path}.{named[1]}"
    return Problem("BAD_REQUEST", f"{where} does not fit at {path}: {_AT.sub('', message)}", field=path)


def not_json(kind: str) -> Problem:
    """Return the problem for a body that is not JSON. No form can send JSON: a page needs CORS for it (origins.py)."""
    return Problem(
        "MEDIA_TYPE", f"the body's Content-Type is {kind}; send {JSON} (with curl: -H 'Content-Type: {JSON}')"
    )


def too_large(size_bytes: int) -> Problem:
    return Problem(
        "TOO_LARGE",
        f"the body has {size_bytes} bytes or more; send at most {BODY_BYTES_MAX}",
        bytes_max=BODY_BYTES_MAX,
    )


def required_fields(kind: type[msgspec.Struct]) -> list[str]:
    return [each.name for each in msgspec.structs.fields(kind) if each.required]
