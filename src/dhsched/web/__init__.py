"""The HTTP server that all roles share: problems, endpoints that document themselves, and the server around them.

A role lists its endpoints and serves them:

    endpoints = [Endpoint(name="get_live", method="GET", path="/v1/lives/{live_id}", handler=get_live, ...)]
    service = Service(role="dispatch", instance="d1", ready=ready)
    await serve(make_app(service, endpoints), host="127.0.0.1", port=7400)

A handler gets a `Request` with path, query and body decoded, and returns a Struct (200) or a `Reply`. It refuses a
request by raising a `Problem`. Routes and `/openapi.json` come from the same list, so they cannot disagree.

Words of this package:

- *role*: a kind of process that serves HTTP (dispatch, infer, room). *Service*: one replica of a role.
- *door*: refuses requests of foreign web pages and host names. *Gate*: checks keys and tokens (access/gate.py).
- *problem*: a refusal as an RFC 9457 document with a stable code.
- *operation*: what `/openapi.json` says of a request. *Endpoint*: an operation with the handler that serves it.
- *raw route*: a route without an `Endpoint`, for WebSockets and event streams.

A request: the wrapper of `server` asks the door (`origins`), then the gate, decodes by `endpoints` (within the
deadlines of `reading`), calls the handler, and turns what is raised into a problem (`problems`).
"""

from dhsched.web.endpoints import YES, Endpoint, Flag, HeaderParameter, NoBody, Operation, Reply, Request, body_in_time
from dhsched.web.gates import listener_tls, make_service, open_gate, serve_role
from dhsched.web.minting import MINT
from dhsched.web.openapi import document
from dhsched.web.problems import PROBLEMS, Problem, problem_from
from dhsched.web.running import listening, run_service, serve
from dhsched.web.server import Service, caller_of, make_app, make_metrics_app
from dhsched.web.sessions import SESSIONS
from dhsched.web.sockets import check_upgrade, upgrade

__all__ = [
    "MINT",
    "PROBLEMS",
    "SESSIONS",
    "YES",
    "Endpoint",
    "Flag",
    "HeaderParameter",
    "NoBody",
    "Operation",
    "Problem",
    "Reply",
    "Request",
    "Service",
    "body_in_time",
    "caller_of",
    "check_upgrade",
    "document",
    "listener_tls",
    "listening",
    "make_app",
    "make_metrics_app",
    "make_service",
    "open_gate",
    "problem_from",
    "run_service",
    "serve",
    "serve_role",
    "upgrade",
]
