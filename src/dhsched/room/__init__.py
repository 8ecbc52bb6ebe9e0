"""The room: viewers stay connected while Workers come and go; media of a superseded Worker is dropped.

Words: a *publisher* is a Worker's connection for one generation; a *viewer* is a browser's connection; a generation is
*on air* while its media reaches the viewers; it *takes over* with its first keyframe.
Walk: publish.py admits a publisher through upstream.py and fence.py, live_room.py passes its packets (packets.py) by
the fence and media_clock.py to each viewer's tracks (tracks.py). whep.py connects viewers, whip.py a
media server; viewing.py serves the page, state and text; viewer_gate.py checks viewers' tokens first, places.py and
rates.py limit them. See docs/guides/room.md.
"""
