"""Every document of the API, once: what a client sends and what a server answers.

A request (`Strict`) is decoded by servers alone, and a field that a server does not know is refused: a misspelt option
must not be ignored. Defaults are not sent, so that an older server takes what a newer client sends. An answer is
decoded by clients alone, and they ignore what they do not know: a newer server may add a field, or a word where the
document lists some (`base.one_of`). A field that is added to an answer has a default, for an answer of an older server.

What is put and comes back has both roles. Its lenient Struct has the fields, and a strict subclass of it is what
servers decode: `PoolConfig` and `PutPool`, `DigitalIdConfig` and `PutDigitalId`, `PoolTier` and `PutPoolTier`.

Paths and queries belong to the servers alone (dispatch/api/parameters.py).
"""
