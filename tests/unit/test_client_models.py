"""The documents of the API: one definition for both sides, strict where a server reads, lenient where a client does."""

import ast
import inspect
import subprocess
import sys
from types import ModuleType
from typing import Any, cast

import msgspec
import pytest

from dhsched.client.models import (
    audit,
    base,
    fleet,
    input,
    keys,
    lives,
    pools,
    store,
    summary,
    tenants,
    viewers,
    workers,
)
from dhsched.dispatch.app import Replica
from dhsched.web import NoBody
from dhsched.web.endpoints import Endpoint

GROUPS = (audit, fleet, input, keys, lives, pools, store, summary, tenants, viewers, workers)
SERVED: list[Endpoint] = Replica(cast(Any, None)).endpoints()
HERE = {each for group in GROUPS for each in vars(group).values() if inspect.isclass(each)}


def is_strict(kind: Any) -> bool:
    return bool(kind.__struct_config__.forbid_unknown_fields)


def structs_in(kind: Any) -> set[Any]:
    """The Structs that a type is made of."""
    found: set[Any] = set()
    for each in msgspec.inspect.multi_type_info([kind]):
        walk(each, found)
    return found


def walk(info: Any, found: set[Any]) -> None:
    if isinstance(info, msgspec.inspect.StructType):
        if info.cls in found:
            return
        found.add(info.cls)
        for field in info.fields:
            walk(field.type, found)
    for name in ("item_type", "key_type", "value_type", "type"):
        if hasattr(info, name):
            walk(getattr(info, name), found)
    for each in getattr(info, "types", ()):
        walk(each, found)
    for each in getattr(info, "item_types", ()):
        walk(each, found)


def test_requests_are_strict_and_answers_are_not() -> None:
    for endpoint in SERVED:
        if endpoint.body is not None:
            assert [each for each in structs_in(endpoint.body) if not is_strict(each)] == [], endpoint.name
        for reply in endpoint.replies.values():
            if reply is not None:
                assert [each for each in structs_in(reply) if is_strict(each)] == [], endpoint.name


def test_every_document_of_dispatch_is_here() -> None:
    bodies = {endpoint.body for endpoint in SERVED if endpoint.body not in (None, NoBody)}
    replies = {reply for endpoint in SERVED for reply in endpoint.replies.values() if reply is not None}
    # Any role serves the first two, and browsers the others.
    others = {"MintToken", "MintedToken", "BeginSession", "Session"}
    assert {each.__name__ for each in (bodies | replies) - HERE} == others


@pytest.mark.parametrize("group", GROUPS)
def test_a_document_is_defined_once(group: ModuleType) -> None:
    defined = {each.name for each in ast.parse(inspect.getsource(group)).body if isinstance(each, ast.ClassDef)}
    others = {
        each.name
        for other in GROUPS
        if other is not group
        for each in ast.parse(inspect.getsource(other)).body
        if isinstance(each, ast.ClassDef)
    }
    assert defined & others == set()


def test_a_client_reads_what_a_newer_server_adds() -> None:
    raw = b'{"live_id": "a", "state": "hibernating", "since_ms": 7}'
    assert msgspec.json.decode(raw, type=lives.Ended) == lives.Ended("a", "hibernating")
    tier = b'{"pool": "gpu", "tier": 1, "weight": 3}'
    assert msgspec.json.decode(tier, type=pools.PoolTier) == pools.PoolTier("gpu", 1)


def test_a_server_refuses_what_it_does_not_know() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `digitalid`"):
        msgspec.json.decode(b'{"digital_id": "a", "digitalid": "b"}', type=lives.CreateLive)
    with pytest.raises(msgspec.ValidationError, match="unknown field `weight`"):
        msgspec.json.decode(b'{"pools": [{"pool": "gpu", "weight": 3}]}', type=pools.PutDigitalId)


def test_a_client_sends_no_defaults() -> None:
    """So that an older server, which refuses a field that it does not know, takes the request."""
    assert msgspec.json.encode(lives.CreateLive("anna", live_id="a")) == b'{"digital_id":"anna","live_id":"a"}'
    assert msgspec.json.encode(input.PushText("Hi.", config=base.UNSET)) == b'{"text":"Hi."}'


def test_the_client_loads_no_server() -> None:
    script = "import sys, dhsched.client; print(*(m for m in sys.modules if m.startswith('dhsched.')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[1] for name in done.stdout.split()}
    assert loaded & {"store", "web", "dispatch", "infer", "worker", "room", "ownership"} == set()
