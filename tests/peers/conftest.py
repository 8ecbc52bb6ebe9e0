"""The room beside WebRTC peers and servers that are not ours. `make peers` runs these tests.

What a test needs and this machine lacks, it names when it skips: coturn, janus, chromium, iproute2 and root for network
namespaces.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.peers)
