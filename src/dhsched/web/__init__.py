"""What every HTTP role shares: problems, endpoints that document themselves, and the server around them.

A role lists its endpoints and serves them:

    endpoints = [Endpoint(name="get_live", method="GET", path="/v1/lives/{live_id}", handler=get_live, ...)]
    service = Service(role="dispatch", instance="d1", ready=ready)
    await serve(make_app(service, endpoints), host="127.0.0.1", port=7400)

A handler is given a `Request` with its path, query and body decoded, and returns a Struct (200) or a `Reply`. What it
refuses it raises as a `Problem`. Routes and `/openapi.json` come from the same list, so they cannot disagree.
"""

from dhsched.web.endpoints import YES, Endpoint, Flag, HeaderParameter, NoBody, Reply, Request, body_in_time
from dhsched.web.gates import listener_tls, make_service, open_gate, serve_role
from dhsched.web.minting import MINT
from dhsched.web.openapi import document
from dhsched.web.problems import PROBLEMS, Problem, problem_from
from dhsched.web.server import Service, caller_of, make_app, run_service, serve
from dhsched.web.sockets import upgrade

__all__ = [
    "MINT",
    "PROBLEMS",
    "YES",
    "Endpoint",
    "Flag",
    "HeaderParameter",
    "NoBody",
    "Problem",
    "Reply",
    "Request",
    "Service",
    "body_in_time",
    "caller_of",
    "document",
    "listener_tls",
    "make_app",
    "make_service",
    "open_gate",
    "problem_from",
    "run_service",
    "serve",
    "serve_role",
    "upgrade",
]
