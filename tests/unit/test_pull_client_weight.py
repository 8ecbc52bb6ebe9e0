"""Which controller a live prefers: the lives spread over the controllers, whatever their addresses are."""

from dhsched.worker.pull_client import weight


def test_no_pair_of_addresses_sends_every_live_to_one_controller() -> None:
    lives = [f"default/live-{n}" for n in range(16)]
    for port in range(7000, 9000):
        first, second = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
        assert 0 < sum(weight(live, first) > weight(live, second) for live in lives) < len(lives), port
