"""Telemetry of a replica: metrics, fleet events, and the history of a live.

`commit` counts in `metrics` and hands each new generation to `handoffs`, whose loop measures its phases. All parts
write fleet events through `events`; `history` reads them back for one live. `fleet_metrics` shows the view as gauges.
"""
