"""Shared parts of the remote verbs: a small synchronous client, the options --url and --json, output, pages.

The client calls the replicas as the Python client does (client/http.py), but each replica only once: a person prefers
an error soon. A server's refusal is raised as `Refused` with its code and its sentence. If there is an API key for a
server (client/credentials.py), each call carries a token that the key minted.

Exit codes: 0 done; 1 refused or not reachable, with one sentence on standard error, which ends with the problem's code
if a server refused; 2 a wrong command line.
"""

from __future__ import annotations

import asyncio
import json as json_
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import typer

from dhsched.access.key_file import KeyFile
from dhsched.addresses import DISPATCH, addresses
from dhsched.cli.tables import readable, table, text
from dhsched.client.credentials import KEY, KEY_FILE, TENANT, TLS_CA, given_or_found
from dhsched.client.following import ServerSent, follow
from dhsched.client.http import Replicas, open_session
from dhsched.errors import BadValue, DhschedError, Refused, Unreachable

URL = ",".join(DISPATCH)
DISPATCH_ROLE = "Dispatch"
INFER_CONTROLLER = "Infer-Controller"
REMEDIES = {
    DISPATCH_ROLE: "start it with `dhsched up` or `dhsched run dispatch`, or give its address by --url or DHSCHED_URL",
    INFER_CONTROLLER: "start one with `dhsched up` or `dhsched run infer`, or give its address by --infer or "
    "DHSCHED_INFER",
}
Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="DHSCHED_URL",
        metavar="URL,...",
        help="Addresses of the Dispatch replicas or their load balancer; each is tried until one answers.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PAGES_MAX = 10_000  # A list with more pages is cut off here.
T = TypeVar("T")


class Server:
    """The replicas of one role, by their addresses, separated by commas.

    `key` None takes the key that client/credentials.py finds; an empty `key` calls without one.
    """

    def __init__(
        self, urls: str = URL, *, role: str = DISPATCH_ROLE, deadline_s: float = 30.0, key: str | None = None
    ) -> None:
        self.urls = addresses(role, urls)
        self._role = role
        self._deadline_s = deadline_s
        self._credentials = given_or_found(key)
        self._replicas: Replicas | None = None

    def call(
        self,
        method: str,
        *path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0,
        twice: bool | None = None,
    ) -> Any:
        """Call an endpoint and return the document of its answer, or None if the answer is empty.

        The parts of `path` are quoted for the URL: a WorkerID has a `#`. `twice` says that the call is safe to repeat;
        by default GET, PUT and calls with an Idempotency-Key are.
        """
        sent = {**_tenant(), **(headers or {})}
        if twice is None:
            twice = method in ("GET", "PUT") or "Idempotency-Key" in sent
        raw = self._run(
            lambda replicas: replicas.call(
                method, *path, body=body, query=query, headers=sent, wait_s=wait_s, twice=twice
            )
        )
        try:
            return json_.loads(raw) if raw else None
        except ValueError:
            at = self._replicas.url if self._replicas else self.urls[0]
            raise DhschedError(
                f"{at} gave an answer that is not JSON; check that the address is that of dhsched"
            ) from None

    def text(self, path: str) -> str:
        """Return the text at `path` outside the API: metrics, health."""
        raw = self._run(lambda replicas: replicas.ask("GET", path, headers=_tenant()))
        return raw.decode(errors="replace")

    async def events(self, *path: str, query: Mapping[str, Any] | None = None) -> AsyncIterator[ServerSent]:
        """Yield server-sent events as they happen, from the replica that answers."""
        async with self._session() as replicas:
            async for event in follow(replicas, *path, query=query, headers=_tenant()):
                yield event

    def _run(self, ask: Callable[[Replicas], Awaitable[T]]) -> T:
        async def run() -> T:
            async with self._session() as replicas:
                return await ask(replicas)

        return asyncio.run(run())

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Replicas]:
        """Yield the replicas with an HTTP session on this loop; they keep the last good replica and the tokens."""
        async with open_session(self.urls, os.environ.get(TLS_CA, "")) as http:
            if self._replicas is None:
                self._replicas = Replicas(
                    self._role, self.urls, http, self._credentials, deadline_s=self._deadline_s, once=True
                )
            self._replicas.use(http)
            try:
                yield self._replicas
            except Refused as refused:
                if refused.status == 401 and not self._replicas.key(self._replicas.url):
                    raise _without_key(self._replicas.url, refused) from None
                raise
            except Unreachable as lost:
                raise lost if lost.unknown else self._nobody(lost.troubles) from lost

    def _nobody(self, troubles: Mapping[str, str]) -> DhschedError:
        where = " or ".join(f"{url} ({troubles[url]})" for url in self.urls if url in troubles)
        return DhschedError(f"cannot reach {self._role} at {where}: {REMEDIES[self._role]}")


def _tenant() -> dict[str, str]:
    """Return the header that names the tenant, if the environment does."""
    tenant = os.environ.get(TENANT)
    return {"X-Tenant": tenant} if tenant else {}


def _without_key(url: str, refused: Refused) -> Refused:
    """Return the 401 with a detail that says where a key was looked for."""
    said = f"{url} needs a key, and there is no key for it in {KEY}, {KEY_FILE} or {KeyFile().path}"
    return Refused(refused.status, {**refused.problem, "detail": f"{said}: set {KEY} to an API key"})


# -- answers


def show(
    document: Any,
    as_json: bool,
    columns: Sequence[str] = (),
    rows: Sequence[Mapping[str, Any]] = (),
    *,
    least: Sequence[str] | None = None,
    cut: str = "",
) -> None:
    """Print a document: as JSON, else `rows` as a table of `columns`, else its names and values line by line."""
    if as_json:
        typer.echo(json_.dumps(document, indent=2))
    elif columns:
        table(columns, [[text(row.get(column)) for column in columns] for row in rows], least=least, cut=cut)
    else:
        table(("", ""), [[name, text(value)] for name, value in readable(document).items()])


def parse_object(given: str, what: str) -> dict[str, Any]:
    """Return the JSON object in an option of the command line. `what` names the option in the error."""
    try:
        value = json_.loads(given)
    except ValueError as error:
        raise BadValue(f"{what} is not JSON ({error}); write it like '{{\"key\": 1}}'") from None
    if not isinstance(value, dict):
        raise BadValue(f"{what} must be a JSON object, like '{{\"key\": 1}}'")
    return value


def all_pages(url: str, path: str, member: str, query: Mapping[str, Any], limit: int) -> list[dict[str, Any]]:
    """Return up to `limit` rows of a list, read page by page."""
    rows: list[dict[str, Any]] = []
    after, server = None, Server(url)
    for _ in range(PAGES_MAX):
        page = server.call("GET", path, query={**query, "after": after, "limit": min(1_000, limit - len(rows))})
        rows += page[member]
        after = page["next"]
        if after is None or len(rows) >= limit:
            break
    return rows
