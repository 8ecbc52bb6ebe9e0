"""The avatar: a runtime that speaks, with a face (docs/guides/avatar.md). It needs the extra `dhsched[avatar]`.

Words: a *persona* is voice, face and background; a *line* is an utterance that waits or is spoken; a *slot* is 20 ms of
the media clock; a *cue* is the sound and picture of one slot; a *viseme* is the mouth shape of a group of sounds.
Walk: runtime.py reads input, cuts it (sentences.py) and speaks it (speech.py, espeak.py) into performance.py, which
makes a cue per slot (clock.py, pose.py, visemes.py). studio.py draws (face.py, features.py) and encodes (encode.py) the
cue, publisher.py sends it to the room. portrait.py, canvas.py, looks.py and hair.py paint the still parts.
"""
