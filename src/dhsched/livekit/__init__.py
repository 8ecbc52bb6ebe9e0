"""LiveKit's rooms (docs/guides/livekit.md): avatars on your own GPUs for LiveKit's agents, and the agents themselves.

`run_avatar` is the GPU side: a model behind LiveKit's VideoGenerator interface, as a runtime. `AvatarSession` is the
agent's side, used like the avatar plugins of vendors. `run_agent` has a whole agent as a live. They need the extra
`livekit`.

Words: a *seat* is the participant that is one generation of a live; a *call* is what a live takes part in: a room, a
name, the agent. Walk: session.py creates the live with its call in the metadata (seats.py); avatar.py joins the room
(joining.py), takes its seat when it is claimed, and plays; audio.py sends what the agent says to the current seat.
agent.py is a runtime that joins and takes its seat in the same way, and talks.
"""

from dhsched.livekit.agent import AgentLive, agent_runtime, run_agent
from dhsched.livekit.avatar import avatar_runtime, run_avatar
from dhsched.livekit.joining import Access
from dhsched.livekit.session import AvatarSession

__all__ = ["Access", "AgentLive", "AvatarSession", "agent_runtime", "avatar_runtime", "run_agent", "run_avatar"]
