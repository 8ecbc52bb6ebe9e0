"""The scope that each endpoint requires: one row per endpoint, by its name. `admin` may use every endpoint.

An endpoint without a row is for admins only, and a test fails until it has one. docs/guides/access.md has the same
table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dhsched.access.callers import Caller, Scope

Shown = Literal["token", "key", "boot"]


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of an endpoint. A caller needs any one of `scopes`.

    `shown` lists what the request may carry: a token, the API key itself, a Worker's boot token. `everyone` admits
    every known caller; `public` admits requests without a token.
    """

    scopes: frozenset[Scope] = frozenset()
    shown: frozenset[Shown] = frozenset({"token"})
    everyone: bool = False
    public: bool = False

    def allows(self, caller: Caller) -> bool:
        return self.everyone or caller.admin or bool(caller.worker) or not self.scopes.isdisjoint(caller.scopes)


def _scope(*scopes: Scope) -> Rule:
    return Rule(frozenset(scopes))


ADMIN = Rule()
READ, WRITE, PUSH = _scope("lives:read", "fleet:read"), _scope("lives:write"), _scope("lives:push")
CHANGE = _scope("lives:write", "fleet:write")
SEE, OPERATE = _scope("fleet:read"), _scope("fleet:write")
EVERYONE = Rule(everyone=True)
PUBLIC = Rule(public=True)

RULES: dict[str, Rule] = {
    # Lives, of the caller's own tenant.
    "create_live": WRITE,
    "list_lives": READ,
    "get_live": _scope("lives:read", "generations:read", "fleet:read"),
    "show_publishing": _scope("generations:read"),
    "change_live": CHANGE,
    "end_live": CHANGE,
    "end_lives": CHANGE,
    "mint_viewer_token": WRITE,
    "list_viewer_keys": _scope("generations:read"),
    "get_history": READ,
    "get_logs": READ,
    "get_state": READ,
    "list_dead_letters": READ,
    "drop_dead_letter": CHANGE,
    "push_dead_letter_again": CHANGE,
    "get_usage": READ,
    "follow_changes": READ,  # An app is given its own tenant's lives and no Workers.
    # These show or change the fleet.
    "reassign_live": OPERATE,
    "get_why": SEE,
    "list_workers": SEE,
    "get_worker": SEE,
    "drain_worker": OPERATE,
    "get_drain": SEE,
    "undrain_worker": OPERATE,
    "get_rebalance": SEE,
    "even_out_pool": OPERATE,
    "list_recoveries": SEE,
    "list_events": SEE,
    "get_summary": SEE,
    "list_replicas": SEE,
    "list_cells": _scope("fleet:read", "workers:register"),
    "get_store": SEE,
    "begin_term": ADMIN,
    "cordon_worker": OPERATE,
    "uncordon_worker": OPERATE,
    "list_pools": SEE,
    "get_pool": SEE,
    "put_pool": ADMIN,
    "delete_pool": ADMIN,
    "list_digital_ids": SEE,
    "get_digital_id": SEE,
    "put_digital_id": ADMIN,
    "delete_digital_id": ADMIN,
    "list_tenants": SEE,
    "get_tenant": SEE,
    "put_tenant": ADMIN,
    "delete_tenant": ADMIN,
    # Access itself.
    "list_audit": ADMIN,
    "mint_token": Rule(shown=frozenset({"key"}), everyone=True),
    "begin_session": Rule(shown=frozenset({"key"}), everyone=True),
    "end_session": PUBLIC,
    "list_keys": ADMIN,
    "create_key": ADMIN,
    "revoke_key": ADMIN,
    "rotate_secret": ADMIN,
    "create_join_token": ADMIN,
    "join": PUBLIC,  # The join token in its body is the permission.
    "list_bans": ADMIN,
    "ban_worker": ADMIN,
    "unban_worker": ADMIN,
    # Input.
    "push_text": PUSH,
    "push_stream": PUSH,
    "push_streams": PUSH,
    "watch_live": READ,
    # Workers. A boot that has registered comes back with its boot token, and pulls with nothing else.
    "worker_link": Rule(frozenset({"workers:register"}), shown=frozenset({"token", "boot"})),
    "pull_link": Rule(shown=frozenset({"boot"})),
    "say_blocked": Rule(shown=frozenset({"boot"})),
    # What every role serves.
    "healthz": PUBLIC,
    "readyz": PUBLIC,
    "metrics": Rule(frozenset({"metrics:read"}), shown=frozenset({"token", "key"})),
    "openapi": EVERYONE,
    "console_page": PUBLIC,  # Files, the same for everybody: what they show comes from other endpoints.
    "console_file": PUBLIC,
    "elsewhere": EVERYONE,
}


def rule_of(name: str) -> Rule:
    return RULES.get(name, ADMIN)
