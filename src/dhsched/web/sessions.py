"""`POST` and `DELETE /v1/session`: a browser's short session, in a cookie (access/sessions.py)."""

from __future__ import annotations

from typing import cast

from dhsched.access.callers import Role
from dhsched.access.sessions import BeginSession, Session, cookie
from dhsched.web.endpoints import Endpoint, Reply, Request
from dhsched.web.problems import Problem


async def begin(asked: Request) -> Reply:
    body: BeginSession = asked.body
    gate, caller = asked.service.gate, asked.caller
    if gate is None:
        raise Problem("NOT_FOUND", "access is open here: no session is needed")
    token = gate.mint(caller, ttl_s=body.ttl_s, role=None, tenant=None, scopes=body.scopes)
    scopes = sorted(body.scopes or caller.scopes)
    session = Session(cast(Role, caller.role), caller.tenant, scopes, body.ttl_s)
    return Reply(session, headers={"Set-Cookie": cookie(token, body.ttl_s, secure=asked.request.secure)})


async def end(asked: Request) -> Reply:
    return Reply(status=204, headers={"Set-Cookie": cookie("", 0, secure=asked.request.secure)})


SESSIONS = [
    Endpoint(
        name="begin_session",
        method="POST",
        path="/v1/session",
        handler=begin,
        summary="Begin a browser's session: a short token in a cookie; the bearer is the API key.",
        tag="access",
        body=BeginSession,
        replies={200: Session},
        problems=["NOT_FOUND"],
    ),
    Endpoint(
        name="end_session",
        method="DELETE",
        path="/v1/session",
        handler=end,
        summary="End a browser's session: its cookie is removed.",
        tag="access",
        replies={204: None},
        audited=False,  # It changes only the browser.
    ),
]
