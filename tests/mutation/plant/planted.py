"""A module that is loaded from another source. Only the standard library is imported: any process may load it."""

import importlib.abc
import importlib.util
import sys
from types import CodeType


class Planted(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from another source."""

    def __init__(self, module: str, source: str) -> None:
        self._module = module
        self._source = source
        self._path = ""

    def find_spec(self, fullname, path, target=None):  # type: ignore[no-untyped-def]
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(fullname)
        assert found is not None and found.origin is not None
        self._path = found.origin
        return importlib.util.spec_from_loader(fullname, self, origin=found.origin)

    def exec_module(self, module):  # type: ignore[no-untyped-def]
        module.__file__ = self._path
        exec(self.get_code(self._module), module.__dict__)

    def get_code(self, fullname: str) -> CodeType:
        """Return the module's code, for one that is run as a program (`python -m`), too."""
        return compile(self._source, self._path, "exec")
