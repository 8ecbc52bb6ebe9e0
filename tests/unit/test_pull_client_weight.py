"""Which controller a live prefers: the lives spread over the controllers, whatever their addresses are."""

from dhsched.links.preference import in_order, weight


def test_no_pair_of_addresses_sends_every_live_to_one_controller() -> None:
    lives = [f"default/live-{n}" for n in range(16)]
    for port in range(7000, 9000):
        first, second = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
        assert 0 < sum(weight(live, first) > weight(live, second) for live in lives) < len(lives), port


def test_a_controller_that_goes_moves_only_the_lives_that_preferred_it() -> None:
    urls = [f"http://c{n}" for n in range(4)]
    for live in (f"default/live-{n}" for n in range(64)):
        order = in_order(live, urls)
        assert sorted(order) == urls and order == in_order(live, reversed(urls))
        assert order[0] == max(urls, key=lambda url: weight(live, url)), "the one that its Worker pulls from"
        assert in_order(live, urls[1:]) == [each for each in order if each != urls[0]]
