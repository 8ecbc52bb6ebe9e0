"""These tests need the extra pipecat, which `make pipecat` installs beside .venv; without it none is imported."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pipecat") is not None else ["test_*.py"]
