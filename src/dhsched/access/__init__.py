"""Access control: API keys, the short-lived tokens that they mint, rules for every endpoint, rates per key, quotas per
tenant.

- *key*: a long-lived secret text, `dhk_<id>_<secret>`, with a role (api_keys.py). The store has only its hash.
- *machine key*: a key for one Worker name; a machine gets it for a *join token* of one use (machine_keys.py). A key of
  role worker that has patterns instead is a *fleet key*.
- *ban*: a Worker name that nobody may register or use.
- *token*: a short-lived signed JWT that a key mints (api_tokens.py, minting.py); requests carry it.
- *boot token*: the token of one Worker process (dhsched/tokens.py).
- *viewer token*: the token with which one person watches one live in a room, or types (viewers.py, viewer_tokens.py).
- *secret*: text of the cell that signs tokens; *rotate* replaces it. *kid* is its number.
- *key ring*: the secrets and keys of the cell, in the store and cached by every replica (ring.py).
- *scope*: a permission; a *role* is a set of scopes (callers.py), a *rule* names the scopes of an endpoint (rules.py).
- *quota*: a limit of a tenant over all replicas (tenants.py, quotas.py); *usage* is what a tenant has used in total
  (usage.py). A *report* tells both to the store, once a second (quota_reports.py).
- *development key*: an admin key that a replica on loopback makes for its user (development.py, key_file.py).

A request: `Gate.admit` (gate.py) takes the endpoint's rule from rules.py, verifies the token with api_tokens.py (or the
key with api_keys.py) against the key ring, takes from the key's `Bucket` (bucket.py), checks the scopes and returns the
`Caller`; `Quotas.take` (quotas.py) counts the request against the caller's tenant. A process that only calls (a Worker,
the command line) uses client/credentials.py, which needs no store.
"""
