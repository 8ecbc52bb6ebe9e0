"""Machines over HTTP: join tokens, which a machine exchanges for its own key, and banned Worker names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from msgspec import structs

from dhsched.access.machine_keys import MachineKeys
from dhsched.access.machine_records import Ban
from dhsched.client.models import keys as m
from dhsched.client.models.base import Strict
from dhsched.dispatch.api.keys import key_out
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.worker_rules import force_out
from dhsched.types import Id, check_id, name_of
from dhsched.web import Endpoint, Problem, Reply, Request


class NamePath(Strict):
    name: Id


class Machines(Part):
    """The endpoints of machines, of one replica."""

    @cached_property
    def _machine_keys(self) -> MachineKeys:
        return MachineKeys(self.context.ring)

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="create_join_token",
                method="POST",
                path="/v1/join-tokens",
                handler=self.invite,
                summary="Make a join token for the machine of one Worker name; its text is shown only now.",
                tag="access",
                body=m.Invite,
                replies={201: m.Invited},
                problems=["BANNED"],
            ),
            Endpoint(
                name="join",
                method="POST",
                path="/v1/join",
                handler=self.join,
                summary="Exchange a join token for the machine's API key. Needs no other token.",
                tag="access",
                body=m.Join,
                replies={201: m.KeyMade},
            ),
            Endpoint(
                name="list_bans",
                method="GET",
                path="/v1/bans",
                handler=self.list_bans,
                summary="Banned Worker names.",
                tag="access",
                replies={200: m.BanList},
            ),
            Endpoint(
                name="ban_worker",
                method="PUT",
                path="/v1/bans/{name}",
                handler=self.ban,
                summary="Ban a Worker name: revoke its machine key, end its Workers, refuse new ones.",
                tag="access",
                path_type=NamePath,
                body=m.BanName,
                replies={200: m.Banned},
            ),
            Endpoint(
                name="unban_worker",
                method="DELETE",
                path="/v1/bans/{name}",
                handler=self.unban,
                summary="Lift the ban of a Worker name. Its machine must join again.",
                tag="access",
                path_type=NamePath,
                replies={204: None},
                problems=["NOT_FOUND"],
            ),
        ]

    async def invite(self, asked: Request) -> Reply:
        body: m.Invite = asked.body
        check_id(body.name, "name"), check_id(body.pool, "pool")
        given = {**structs.asdict(body), "labels": ",".join(body.labels)}
        text, token = await self._machine_keys.invite(**given)
        return Reply(m.Invited(text, token.name, token.expires_at_ms), status=201)

    async def join(self, asked: Request) -> Reply:
        text, record = await self._machine_keys.join(asked.body.token)
        return Reply(m.KeyMade(text, key_out(record)), status=201)

    async def list_bans(self, asked: Request) -> m.BanList:
        await self.context.ring.read_or_known()
        return m.BanList([ban_out(ban) for _, ban in sorted(self.context.ring.bans.items())])

    async def ban(self, asked: Request) -> m.Banned:
        name = check_id(asked.path.name, "name")
        workers = await self.named(name)
        ban = await self._machine_keys.ban(name, asked.body.note)
        await self.force_out_banned(name, workers)
        return m.Banned(ban.name, ban.banned_at_ms, ban.note, workers)

    async def named(self, name: str) -> list[str]:
        """Return the Workers of this name that are not gone."""
        rows = (await self.context.records.fleet.snapshot()).workers
        return sorted(row.worker for row in rows if name_of(row.worker) == name and not row.gone)

    async def force_out_banned(self, name: str, workers: Sequence[str]) -> None:
        """Make the Workers of a banned name gone."""
        for worker in workers:
            # A Worker that has no link now is ended here; the others are ended by the replica that has their link too.
            await force_out(self.context, worker, f"the Worker name {name} is banned")

    async def unban(self, asked: Request) -> Reply:
        name = asked.path.name
        if not await self._machine_keys.unban(name):
            raise Problem("NOT_FOUND", f"Worker name {name} is not banned; list the bans", name=name)
        return Reply(status=204)


def ban_out(ban: Ban) -> m.BanOut:
    return m.BanOut(ban.name, ban.banned_at_ms, ban.note)
