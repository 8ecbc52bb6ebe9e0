"""Viewer tokens over HTTP: apps mint them for their lives, rooms fetch the public keys that verify them."""

from __future__ import annotations

from dhsched.access.viewer_tokens import public_text, sign
from dhsched.access.viewers import Viewer
from dhsched.client.models import viewers as m
from dhsched.client.models.base import UNSET, LivePath, Optional
from dhsched.dispatch.api.lives import find_unended
from dhsched.dispatch.api.part import Part
from dhsched.errors import Forbidden
from dhsched.types import live_key
from dhsched.web import Endpoint, Request


class ViewerTokens(Part):
    """The endpoints of viewer tokens, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="mint_viewer_token",
                method="POST",
                path="/v1/lives/{live_id}/viewer-tokens",
                handler=self.mint,
                summary="Mint a token with which one person watches the live in a room, or types.",
                tag="viewers",
                path_type=LivePath,
                body=m.MintViewerToken,
                replies={200: m.ViewerToken},
                problems=["NOT_FOUND", "ENDED"],
            ),
            Endpoint(
                name="list_viewer_keys",
                method="GET",
                path="/v1/viewer-keys",
                handler=self.keys,
                summary="The public keys that verify viewer tokens, for rooms.",
                tag="rooms",
                query=m.ViewerKeysQuery,
                replies={200: m.ViewerKeys},
            ),
        ]

    async def mint(self, asked: Request) -> m.ViewerToken:
        body: m.MintViewerToken = asked.body
        caller, live_id = asked.caller, asked.path.live_id
        if {"say", "interrupt"} & {*body.grants} and not (caller.admin or "lives:push" in caller.scopes):
            raise Forbidden("a token without the scope lives:push mints viewer tokens that watch, and no others")
        await find_unended(self.context, asked, live_id)
        viewer = Viewer(
            live=live_key(caller.tenant, live_id),
            grants=frozenset(body.grants),
            identity=body.identity,
            say_rate_per_s=given(body.say_rate_per_s),
            interrupt_rate_per_s=given(body.interrupt_rate_per_s),
        )
        ring = self.context.ring
        kid = ring.newest("viewer")
        token = sign(viewer, kid=kid, secret=ring.secrets("viewer")[kid], ttl_s=body.ttl_s)
        return m.ViewerToken(live_id, token, body.ttl_s)

    async def keys(self, asked: Request) -> m.ViewerKeys:
        ring = self.context.ring
        if asked.query.kid is not UNSET and asked.query.kid not in ring.secrets("viewer"):
            await ring.reread()  # Another replica may have made it a moment ago.
        found = ring.secrets("viewer")
        return m.ViewerKeys([m.ViewerKey(kid, public_text(found[kid])) for kid in sorted(found, key=int)])


def given(value: float | Optional) -> float | None:
    return None if value is UNSET else value
