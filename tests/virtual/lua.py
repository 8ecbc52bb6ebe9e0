"""The product's own Lua files, run in this process by Lua 5.1, which is what the servers have.

A script's reply is written as RESP by Lua itself: one text crosses over, where its tables would cross value by value.
"""

from __future__ import annotations

from typing import Any

from lupa.lua51 import LuaError, LuaRuntime

from tests.virtual.keyspace import OK, Keyspace, Scored, flat, shown

PRELUDE = rb"""
redis = {}
function redis.error_reply(text) return { err = text } end
function redis.status_reply(text) return { ok = text } end
local function said(value)
  local kind = type(value)
  if kind == 'string' then
    return '$' .. #value .. '\r\n' .. value .. '\r\n'
  elseif kind == 'number' then
    return ':' .. string.format('%d', value) .. '\r\n'
  elseif kind == 'table' then
    if value.err then
      return '-' .. value.err .. '\r\n'
    elseif value.ok then
      return '+' .. value.ok .. '\r\n'
    end
    local parts = {}
    for i = 1, #value do
      if value[i] == nil then
        break
      end
      parts[i] = said(value[i])
    end
    return '*' .. #parts .. '\r\n' .. table.concat(parts)
  elseif value == true then
    return ':1\r\n'
  end
  return '_\r\n'
end
local command
local function shaped(first, ...)
  if first == true then
    return { ... }
  end
  return first
end
function redis.call(...)
  return shaped(command(...))
end
local function cut(n, all)
  local keys, argv = {}, {}
  for i = 1, n do
    keys[i] = all[i]
  end
  for i = n + 1, #all do
    argv[i - n] = all[i]
  end
  return keys, argv
end
local function run(script, n, ...)
  KEYS, ARGV = cut(n, { ... })
  return said(script())
end
local function run_many(script, keys, argv)
  KEYS, ARGV = keys, argv
  return said(script())
end
return function(python)
  command = python
  return run, run_many
end
"""
AT_ONCE_MAX = 200  # Values that cross over one by one: Lua has room for some thousands. More cross over in a table.
DENIED = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"


class Scripts:
    """The scripts that clients have loaded, by their hash. `run` returns a reply as RESP."""

    def __init__(self, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self._lua = LuaRuntime(encoding=None, unpack_returned_tuples=True)
        self._table = self._lua.table_from
        self._commands = keyspace.commands
        self._loaded: dict[bytes, tuple[Any, bool]] = {}
        self._ok = self._table({b"ok": b"OK"})
        self._run, self._run_many = self._lua.execute(PRELUDE)(self._call)

    def __contains__(self, sha: bytes) -> bool:
        return sha in self._loaded

    def load(self, sha: bytes, source: bytes) -> None:
        """Compile a script; its first line says whether it may run while the memory is full."""
        if sha not in self._loaded:
            shebang, _, body = source.partition(b"\n")
            self._loaded[sha] = self._lua.compile(b"-- " + shebang + b"\n" + body), b"flags=" not in shebang

    def run(self, sha: bytes, keys: list[bytes], argv: list[bytes]) -> bytes:
        script, refused_when_full = self._loaded[sha]
        if refused_when_full and self._keyspace.full:
            return DENIED
        reply: bytes
        if len(keys) + len(argv) <= AT_ONCE_MAX:
            reply = self._run(script, len(keys), *keys, *argv)
        else:
            reply = self._run_many(script, self._table(keys), self._table(argv))
        return reply

    def _call(self, name: bytes, *args: Any) -> Any:
        """Run a command for a script. A list is returned as a tuple that begins with True: it becomes a table there."""
        for each in args:
            if each.__class__ is not bytes:
                args = tuple([each if each.__class__ is bytes else shown(each) for each in args])
                break
        reply = self._commands[name](*args)
        kind = reply.__class__
        if kind is bytes or kind is int:
            return reply
        if reply is None:
            return False
        if kind is list:
            if reply and reply[0].__class__ is Scored:
                reply = [*flat(reply)]
            return self._listed([said(each) for each in reply])
        if kind is dict:
            return self._listed([*flat(reply.items())])
        if kind is float:
            return shown(reply)
        assert reply is OK
        return self._ok

    def _listed(self, values: list[Any]) -> Any:
        return (True, *values) if len(values) <= AT_ONCE_MAX else self._table(values)


def said(value: Any) -> Any:
    """A value within a list as a script of RESP2 sees it."""
    if value is None:
        return False
    return shown(value) if value.__class__ is float else value


__all__ = ["LuaError", "Scripts"]
