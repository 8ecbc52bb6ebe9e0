"""Shared parts of the remote verbs: a small synchronous client, the options --url and --json, output, pages.

The client calls the replicas as the Python client does (client/calls.py), but each replica only once: a person prefers
an error soon. A server's refusal is raised as `Refused` with its code and its sentence. If there is an API key for a
server (context_file.py, client/credentials.py), each call carries a token that the key minted.

Exit codes: 0 done; 1 refused or not reachable, with one sentence on standard error, which ends with the problem's code
if a server refused; 2 a wrong command line.
"""

from __future__ import annotations

import json as json_
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dhsched.access.key_file import KeyFile
from dhsched.addresses import DISPATCH, addresses
from dhsched.cli.context_file import authority, key_at, tenant
from dhsched.cli.tables import readable, table, text
from dhsched.client.blocking import Blocking, finish
from dhsched.client.calls import Calls
from dhsched.client.credentials import KEY, KEY_FILE, Credentials
from dhsched.errors import BadValue, DhschedError, Refused, Unreachable

if TYPE_CHECKING:
    from dhsched.client.following import ServerSent

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


class Server:
    """The replicas of one role, by their addresses, separated by commas.

    `key` None takes the key that context_file.py finds; an empty `key` calls without one.
    """

    def __init__(
        self, urls: str = URL, *, role: str = DISPATCH_ROLE, deadline_s: float = 30.0, key: str | None = None
    ) -> None:
        self.urls = addresses(role, urls)
        self._role = role
        self._deadline_s = deadline_s
        self._credentials = Credentials(find=key_at) if key is None else Credentials(key)
        self._calls = Calls(role, self.urls, Blocking(authority()), self._credentials, deadline_s=deadline_s, once=True)

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
            self._calls.call(method, *path, body=body, query=query, headers=sent, wait_s=wait_s, twice=twice)
        )
        try:
            return json_.loads(raw) if raw else None
        except ValueError:
            raise DhschedError(
                f"{self._calls.url} gave an answer that is not JSON; check that the address is that of dhsched"
            ) from None

    def text(self, path: str) -> str:
        """Return the text at `path` outside the API: metrics, health."""
        return self._run(self._calls.ask("GET", path, headers=_tenant())).decode(errors="replace")

    async def events(self, *path: str, query: Mapping[str, Any] | None = None) -> AsyncIterator[ServerSent]:
        """Yield server-sent events as they happen, from the replica that answers."""
        from dhsched.client.following import follow  # Late: it loads aiohttp.
        from dhsched.client.http import Replicas, open_session

        async with open_session(self.urls, authority()) as http:
            replicas = Replicas(self._role, self.urls, http, self._credentials, deadline_s=self._deadline_s, once=True)
            with self._explaining(replicas):
                async for event in follow(replicas, *path, query=query, headers=_tenant()):
                    yield event

    def _run(self, call: Coroutine[Any, Any, bytes]) -> bytes:
        with self._explaining(self._calls):
            return finish(call)

    @contextmanager
    def _explaining(self, calls: Calls) -> Iterator[None]:
        """Say in an error where a key was looked for, or which addresses do not answer."""
        try:
            yield
        except Refused as refused:
            if refused.status == 401 and not calls.key(calls.url):
                raise _without_key(calls.url, refused) from None
            raise
        except Unreachable as lost:
            raise lost if lost.unknown else self._nobody(lost.troubles) from lost

    def _nobody(self, troubles: Mapping[str, str]) -> DhschedError:
        where = " or ".join(f"{url} ({troubles[url]})" for url in self.urls if url in troubles)
        return DhschedError(f"cannot reach {self._role} at {where}: {REMEDIES[self._role]}")


def _tenant() -> dict[str, str]:
    """Return the header that names the tenant, if the environment or the context does."""
    named = tenant()
    return {"X-Tenant": named} if named else {}


def _without_key(url: str, refused: Refused) -> Refused:
    """Return the 401 with a detail that says where a key was looked for."""
    said = f"{url} needs a key, and there is no key for it in {KEY}, {KEY_FILE}, the context or {KeyFile().path}"
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


def seconds_of(text: str, option: str) -> int:
    """Return the seconds in a duration like 90s, 10m, 2h or 1d; a plain number is seconds."""
    if (found := re.fullmatch(r"([0-9]{1,7})([smhd]?)", text)) is None:
        raise BadValue(f"{option} is {text!r}; write it like 90s, 10m or 2h")
    return int(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}[found[2]]


def lifetimes_of(idle: str | None, longest: str | None) -> dict[str, int | None]:
    """Return the lifetime in the options --idle and --max as fields of a request; `none` is no limit."""
    given = (("idle_s", "--idle", idle), ("max_s", "--max", longest))
    return {
        field: None if value == "none" else seconds_of(value, option)
        for field, option, value in given
        if value is not None
    }


def all_pages(
    url: str,
    path: str,
    member: str,
    query: Mapping[str, Any],
    limit: int,
    wanted: Callable[[dict[str, Any]], bool] | None = None,
) -> list[dict[str, Any]]:
    """Return up to `limit` rows of a list that are `wanted`, read page by page. Say which cells could not be asked."""
    rows: list[dict[str, Any]] = []
    left_out: set[str] = set()
    after, server = None, Server(url)
    for _ in range(PAGES_MAX):
        size = 1_000 if wanted else min(1_000, limit - len(rows))
        page = server.call("GET", path, query={**query, "after": after, "limit": size})
        rows += filter(wanted, page[member])
        left_out |= {*page.get("cells_left_out", ())}
        if (after := page["next"]) is None or len(rows) >= limit:
            break
    if left_out:
        typer.echo(f"without cell {', '.join(sorted(left_out))}, which cannot be asked now", err=True)
    return rows[:limit]


def with_cell(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the columns of a table, and one for the cell of each row where the deployment has several cells."""
    return (*columns, "cell") if any(row.get("cell") for row in rows) else (*columns,)
