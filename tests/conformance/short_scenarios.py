"""Short scenarios for single checks that no scenario of tests/scenarios needs for its story, in the same language.

Each is there for the mutants that name it (mutants.py).
"""

from __future__ import annotations

SHORT_SCENARIOS = {
    "late_recovery": """# The Worker is back before the recovery that found no free slot: nobody goes on waiting.
worker A
place L on A                              => COMMITTED A@1
expire A                                  => EXPIRED 1
place L from 1 in gpu cause recover     => FULL
wait 5s
place L from 1 in gpu cause recover     => FULL
report A                                  => REPORTED
place L from 1 in gpu cause recover     => MOOT
check waiting gpu none
""",
    "waits_on": """# Asking again keeps the place in the queue, and so does asking one Worker alone.
worker A
place L on A                              => COMMITTED A@1
expire A                                  => EXPIRED 1
place L from 1 in gpu cause recover     => FULL
wait 5s
place L from 1 in gpu cause recover     => FULL
place L from 1 on A cause recover       => FULL
check waiting gpu L
""",
    "asked_to_leave": """# The source is the emptiest, and not an answer.
worker A capacity=4
worker B capacity=4
place L on A                              => COMMITTED A@1
place M on B                              => COMMITTED B@1
place N on B                              => COMMITTED B@1
place L from 1 in gpu                     => COMMITTED B@2
""",
    "waiting_before_equals": """# Who waits for a free slot in a Pool goes before creates, and before nobody else.
worker A capacity=2
worker B
worker C
place L on B                              => COMMITTED B@1
place M on A                              => COMMITTED A@1
place N on C                              => COMMITTED C@1
expire B                                  => EXPIRED 1
place L from 1 on B in gpu cause recover => COMMITTED A@2 refused=B:LOST:1/1
expire C                                  => EXPIRED 1
place N from 1 in gpu cause recover     => FULL
end M                                     => FINISHED ended
depart A M@1                              => DEPARTED departing
place O on gpu=A in gpu                   => WAITING refused=A:WAITING:1/2
place O in gpu                            => WAITING
place L from 2 in gpu                     => FULL
place N from 1 in gpu cause recover     => COMMITTED A@2
""",
    "recovered_in_place": """# A live that lost its runtime may come back to where it was.
worker A capacity=2
place L on A                              => COMMITTED A@1
depart A L@1                              => DEPARTED starting
place L from 1 in gpu cause recover     => COMMITTED A@2
""",
    "own_worker_alone": """# Where only the Worker that is to be left has a free slot, nobody has.
worker A capacity=2
place L on A                              => COMMITTED A@1
place L from 1 in gpu                     => FULL
""",
    "move_from_the_emptiest": """# The source is the emptiest of the equals, and not an answer.
worker A capacity=4
worker B capacity=4
worker C capacity=4
place L on A                              => COMMITTED A@1
place M on B                              => COMMITTED B@1
place N on B                              => COMMITTED B@1
place O on B                              => COMMITTED B@1
place P on C                              => COMMITTED C@1
place Q on C                              => COMMITTED C@1
reserve L from 1 on gpu=B=A=C             => RESERVED C@2
""",
    "reserve_past_the_budget": """# A reservation starts nothing yet: budgets do not keep it from the emptiest.
limits starts_create_max=1 starts_recover_max=1
worker A capacity=4
worker B capacity=4
worker C capacity=2
place L on A                              => COMMITTED A@1
place M on B                              => COMMITTED B@1
pull M B@1                                => PULLING 1 after 0
place N on B                              => COMMITTED B@1
place O on C                              => COMMITTED C@1
pull O C@1                                => PULLING 1 after 0
reserve O from 1 on gpu=B=A               => RESERVED A@2
""",
    "crash_elsewhere": """# A vacant slot has nothing to depart.
worker A
worker B
place L on A                              => COMMITTED A@1
depart A L@1                              => DEPARTED starting
place L from 1 on B cause recover       => COMMITTED B@2
check slots A none
""",
    "long_history": """# History has its limit.
limits history_max=1
worker A capacity=2
worker B capacity=2
place L on A                              => COMMITTED A@1
place L from 1 on B                       => COMMITTED B@2
place L from 2 on A                       => COMMITTED A@3
""",
    "move_refused": """# No move to where the live is, and none below the floor.
limits term_step=100
worker A capacity=2
worker B
place L on A                              => COMMITTED A@1
reserve L from 1 on A                     => FULL
new_term 1                                => NEW_TERM 2 floor 100
reserve L from 1 on B                     => RESERVED B@101
""",
    "move_of_an_idle_live": """# A live that nobody looked at any more is looked at when its move expires.
worker A
worker B
place L on A                              => COMMITTED A@1
pull L A@1                                => PULLING 1 after 0
wait 15s
look L                                    => IDLE
reserve L from 1 on B                     => RESERVED B@2
check agenda L in=120s
hold L 1                                  => NO_MOVE
""",
    "expiry_before_the_period": """# The expiry of a move comes before the period of a standstill.
limits move_expires_ms=1000
worker A
worker B
place L on A                              => COMMITTED A@1
wait 14500ms
reserve L from 1 on B                     => RESERVED B@2
wait 500ms
look L                                    => WAKE
check agenda L in=500ms
""",
    "held_twice": """# A hold that was fixed stays where it is, wherever input stands now: an interrupt took it along.
worker A
worker B
place L on A                              => COMMITTED A@1
pull L A@1                                => PULLING 1 after 0
append L text "a"                         => APPENDED 1
release L A@1                             => ITEMS 1..1
reserve L from 1 on B                     => RESERVED B@2
hold L 2                                  => HELD next
append L text "b" boundary                => APPENDED 2
release L A@1                             => ITEMS 2..2
hold L 2                                  => HELD 2
interrupt L "stop"                        => APPENDED 3
check live L released=2
hold L 2                                  => HELD 3
""",
    "interrupted_before_the_boundary": """# A hold that waits for the next boundary goes on waiting.
worker A
worker B
place L on A                              => COMMITTED A@1
pull L A@1                                => PULLING 1 after 0
append L text "a"                         => APPENDED 1
release L A@1                             => ITEMS 1..1
reserve L from 1 on B                     => RESERVED B@2
hold L 2                                  => HELD next
interrupt L "stop"                        => APPENDED 2
""",
    "strangers": """# Neither another Worker nor the selected one before its first pull is handed anything.
worker A
worker B
place L on A                              => COMMITTED A@1
append L text "a"                         => APPENDED 1
release L A@1 pull 0                      => STALE A@1
pull L A@1                                => PULLING 1 after 0
release L B@1 pull 1                      => STALE A@1
""",
    "forget_release_kept_pull": """# Asked after an item that is here and not released, the store hands it out again.
worker A
place L on A                              => COMMITTED A@1
append L text "one" mark=a                => APPENDED 1
append L text "two" mark=b                => APPENDED 2
pull L A@1                                => PULLING 1 after 0
remember
release L A@1 pull 1 after 0              => ITEMS 1..2
forget
release L A@1 pull 1 after 2 mark=b       => ITEMS 1..2
""",
    "forget_later_ack": """# The mark of every ack is kept, not only that of a generation's first.
worker A
place L on A                              => COMMITTED A@1
append L text "one" mark=a                => APPENDED 1
append L text "two" mark=b                => APPENDED 2
pull L A@1                                => PULLING 1 after 0
release L A@1 pull 1 after 0              => ITEMS 1..2
ack L A@1 1 mark=a                        => ACKED 1
ack L A@1 2 mark=b                        => ACKED 2
pull L A@1 after 2 mark=b                 => PULLING 2 after 2
pull L A@1 after 2 mark=a                 => STALE nobody
""",
    "config_fallback_planned": """# Only a recovery gives a configuration up.
limits poison_max=2
worker A
place L on A                              => COMMITTED A@1
append L config "c1"                      => APPENDED 1
pull L A@1                                => PULLING 1 after 0
release L A@1                             => ITEMS 1..1
ack L A@1 1                               => ACKED 1
place L from 1 on A                       => COMMITTED A@2
place L from 2 on A                       => COMMITTED A@3
place L from 3 on A                       => COMMITTED A@4
check live L starts=2 config="c1" fallback=""
""",
    "vacant_forgets_its_stall": """# A runtime that is gone is no stall any more.
limits claim_wait_ms=1000
worker A
place L on A                              => COMMITTED A@1
wait 1s
look L                                    => WAKE
wait 1s
look L                                    => RECOVER A@1 stalled
depart A L@1                              => DEPARTED starting
check live L stalled=no
""",
    "closing_not_handed": """# What no generation had in its hands is no poison, not even a closing live's last item.
limits poison_max=1
worker A
place L on A                              => COMMITTED A@1
append L text "one"                       => APPENDED 1
end L after_pending                       => FINISHED closing
depart A L@1                              => DEPARTED starting
place L from 1 on A cause recover       => COMMITTED A@2
""",
    "less_credit": """# A repeat with less credit takes nothing back.
worker A
place L on A                              => COMMITTED A@1
pull L A@1                                => PULLING 1 after 0
append L text "a"                         => APPENDED 1
append L text "b"                         => APPENDED 2
append L text "c"                         => APPENDED 3
release L A@1 credit 3                    => ITEMS 1..3
release L A@1 after 0 credit 1            => ITEMS 1..1
check live L released=3
""",
    "producer_at_the_end": """# An ended live remembers no producers.
worker A
place L on A                              => COMMITTED A@1
append L text "a" producer=p n=1          => APPENDED 1
end L                                     => FINISHED ended
""",
    "requests_forgotten": """# Request ids leave when they are old and enough are left, or when there are too many.
limits recent_min=2 recent_max=3 recent_ms=1000
worker A
place L on A                              => COMMITTED A@1
append L text "a" request=a               => APPENDED 1
append L text "b" request=b               => APPENDED 2
append L text "c" request=c               => APPENDED 3
append L text "d" request=d               => APPENDED 4
append L text "a" request=a               => APPENDED 5
append L text "c" request=c               => DUPLICATE
wait 1s
append L text "e" request=e               => APPENDED 6
wait 1s
append L text "f" request=f               => APPENDED 7
append L text "e" request=e               => DUPLICATE
""",
    "goes_on_while_it_waits": """# A live that was given up too early and gets on with its input waits no more.
worker A
place L on A                              => COMMITTED A@1
pull L A@1                                => PULLING 1 after 0
append L text "a"                         => APPENDED 1
release L A@1                             => ITEMS 1..1
expire A                                  => EXPIRED 1
place L from 1 in gpu cause recover     => FULL
report A                                  => REPORTED
ack L A@1 1                               => ACKED 1
check waiting gpu none
""",
    "busy_with_something_else": """# Only the current generation's own Worker stops its clock.
worker A
worker B
place L on A                              => COMMITTED A@1
place L from 1 on A                       => COMMITTED A@2
wait 15s
look L                                    => WAKE
report A busy=L@1                         => REPORTED
report B busy=L@2                         => REPORTED
wait 15s
look L                                    => RECOVER A@2 stalled
""",
    "table_of_another_term": """# A table of the same revision in another term is another table.
worker A
report A rev=1                            => REPORTED
""",
    "reaped_in_time": """# Only a Worker that was lost for long is reaped; one that is gone is not lost.
worker A
worker B
place L on B                              => COMMITTED B@1
reap A                                    => MOOT
expire A                                  => EXPIRED 0
reap A                                    => MOOT
wait 600s
reap A                                    => WORKER_SET ready gone
exit B                                    => WORKER_SET ready gone
expire B                                  => NOTHING
""",
    "swept_clean": """# A live that is created anew has nothing of the one before it: no dead letters, no saved state.
limits poison_max=2 ended_ttl_ms=1000 term_step=16
worker A
place L on A                              => COMMITTED A@1
append L text "good"                      => APPENDED 1
append L text "bad"                       => APPENDED 2
pull L A@1                                => PULLING 1 after 0
release L A@1                             => ITEMS 1..2
ack L A@1 1 state "memory"                => ACKED 1
depart A L@1                              => DEPARTED running
place L from 1 on A cause recover       => COMMITTED A@2
pull L A@2                                => PULLING 1 after 1
release L A@2                             => ITEMS 2..2
depart A L@2                              => DEPARTED running
place L from 2 on A cause recover       => COMMITTED A@3
end L                                     => FINISHED ended
depart A L@3                              => DEPARTED departing
wait 1s
look L                                    => SWEPT
new_term 1                                => NEW_TERM 2 floor 19
place L on A                              => COMMITTED A@20
pull L A@20                               => PULLING 1 after 0 state=""
""",
    "looked_at_early": """# A look before the period is over, whatever brought it forward, finds no standstill yet.
worker A
place L on A                              => COMMITTED A@1
wait 15s
look L                                    => WAKE
expire A                                  => EXPIRED 1
report A                                  => REPORTED
look L                                    => LATER 15000ms
""",
    "patience": """# The lease doubles up to its limit.
limits lease_ms=1000 backoff_max_ms=2000
worker A
place L on A                              => COMMITTED A@1
expire A                                  => EXPIRED 1
look L                                    => RECOVER A@1 lost
wait 1s
look L                                    => RECOVER A@1 lost
wait 2s
look L                                    => RECOVER A@1 lost
check agenda L in=2s
""",
}
