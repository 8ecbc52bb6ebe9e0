"""Every document of the API, once: the requests of clients and the answers of servers.

Only servers decode a request (`Strict`), and they refuse an unknown field: a misspelt option must not be ignored.
Defaults are not sent, so that an older server takes what a newer client sends. Only clients decode an answer, and they
ignore what they do not know: a newer server may add a field, or a value where the document lists some (`base.one_of`).
A field that is added to an answer has a default, for an answer of an older server.

A document that is put and comes back has both roles. Its lenient Struct has the fields, and servers decode a strict
subclass: `PoolConfig` and `PutPool`, `DigitalIdConfig` and `PutDigitalId`, `PoolTier` and `PutPoolTier`, `TenantLimits`
(access/tenants.py) and `PutTenant`.

Paths and queries belong to the servers alone (dispatch/api/parameters.py).
"""
