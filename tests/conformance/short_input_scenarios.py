"""Short scenarios for single checks of the input path; short_scenarios.py says what they are for."""

from __future__ import annotations

INPUT = {
    "emit_bytes": """# Bytes of the messages that are kept count, and of no others.
limits emits_max=2 emits_bytes_max=40
worker A
place L on A                              => COMMITTED A@1
pull L A@1                                => PULLING 1 after 0
emit L A@1 1 m data="{          }"        => EMITTED 1
emit L A@1 2 m data="{          }"        => EMITTED 2
emit L A@1 3 m data="{          }"        => EMITTED 3
check live L emits=1.2:m,1.3:m
emit L A@1 4 m data="{              }"    => EMITTED 4
check live L emits=1.3:m,1.4:m
emit L A@1 5 m data="{                  }" => EMITTED 5
check live L emits=1.5:m
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
    "usual_fence": """# Past a generation's first ack its fence is compared as one text: all of it counts.
worker A
worker B
place L on A                              => COMMITTED A@1
append L text "one"                       => APPENDED 1
append L text "two"                       => APPENDED 2
pull L A@1                                => PULLING 1 after 0
release L A@1 pull 1 after 0              => ITEMS 1..2
ack L A@1 1                               => ACKED 1
pull L A@1 after 1                        => PULLING 2 after 1
release L A@1 pull 1 after 2              => STALE A@1 pull_no=2
release L A@2 pull 2 after 1              => STALE A@1 pull_no=2
release L B@1 pull 2 after 1              => STALE A@1 pull_no=2
ack L A@2 2                               => STALE A@1 pull_no=2
ack L B@1 2                               => STALE A@1 pull_no=2
release L A@1 pull 2 after 1              => ITEMS 2..2
ack L A@1 2                               => ACKED 2
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
append L text "a" request=a               => DUPLICATE
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
    "number_at_the_floor": """# The last number that a term may have issued is void in the next one.
limits term_step=1
worker A
place L on A                              => COMMITTED A@1
pull L A@1                                => PULLING 1 after 0
append L text "a"                         => APPENDED 1
release L A@1                             => ITEMS 1..1
new_term 1                                => NEW_TERM 2 floor 1
append L text "b" through A@1             => APPENDED 2
check live L released=1
release L A@1 pull 1 after 0              => STALE A@1
ack L A@1 1                               => STALE A@1
emit L A@1 1 m                            => STALE A@1
pull L A@1                                => STALE A@1
look L                                    => RECOVER A@1 floor
""",
    "producer_goes_on": """# A producer that is known finds the queue empty: the next look is set for its item too.
worker A
place L on A                              => COMMITTED A@1
append L text "a" producer=p n=1          => APPENDED 1
pull L A@1                                => PULLING 1 after 0
release L A@1                             => ITEMS 1..1
ack L A@1 1                               => ACKED 1
wait 20s
look L                                    => IDLE
append L text "b" producer=p n=2          => APPENDED 2
check agenda L in=30s
""",
    "forget_second_release": """# Asked after an item whose release was forgotten, the store compares that item's mark.
worker A
place L on A                              => COMMITTED A@1
append L text "one" mark=a                => APPENDED 1
append L text "two" mark=b                => APPENDED 2
pull L A@1                                => PULLING 1 after 0
release L A@1 pull 1 after 0 credit 1     => ITEMS 1..1
remember
release L A@1 pull 1 after 1 mark=a       => ITEMS 2..2
forget
release L A@1 pull 1 after 2 mark=b       => ITEMS 2..2
""",
    "closing_while_held": """# A closing live that waits for a boundary has one behind its last item, and none before.
worker A
worker B
place L on A                              => COMMITTED A@1
pull L A@1                                => PULLING 1 after 0
append L text "a"                         => APPENDED 1
append L text "b"                         => APPENDED 2
append L text "c"                         => APPENDED 3
release L A@1 credit 1                    => ITEMS 1..1
reserve L from 1 on B                     => RESERVED B@2
hold L 2                                  => HELD next
end L after_pending                       => FINISHED closing
release L A@1                             => ITEMS 2..3
hold L 2                                  => HELD 3
""",
    "repeated_while_held": """# A boundary that was passed before the hold is none when its item is handed out again.
worker A
worker B
place L on A                              => COMMITTED A@1
pull L A@1                                => PULLING 1 after 0
append L text "a" boundary                => APPENDED 1
append L text "b"                         => APPENDED 2
append L text "c" boundary                => APPENDED 3
append L text "d"                         => APPENDED 4
release L A@1 credit 2                    => ITEMS 1..2
reserve L from 1 on B                     => RESERVED B@2
hold L 2                                  => HELD next
release L A@1 after 0                     => ITEMS 1..3
hold L 2                                  => HELD 3
""",
    "closed_after_the_release": """# What was released before the end was announced is at a boundary once that is known.
worker A
place L on A                              => COMMITTED A@1
pull L A@1                                => PULLING 1 after 0
append L text "a"                         => APPENDED 1
release L A@1                             => ITEMS 1..1
end L after_pending                       => FINISHED closing
release L A@1 after 0                     => ITEMS 1..1
""",
    "waits_no_more": """# A live that goes on where it is leaves its place to the next one that waits.
worker A
worker B
place L on A                              => COMMITTED A@1
place M on B                              => COMMITTED B@1
pull L A@1                                => PULLING 1 after 0
append L text "a"                         => APPENDED 1
append L text "b"                         => APPENDED 2
release L A@1                             => ITEMS 1..2
ack L A@1 1                               => ACKED 1
expire A                                  => EXPIRED 1
expire B                                  => EXPIRED 1
place L from 1 in gpu cause recover       => FULL
place M from 1 in gpu cause recover       => FULL
worker C
look M                                    => RECOVER B@1 lost
check agenda M in=2s
ack L A@1 2                               => ACKED 2
check waiting gpu M
check agenda M in=0s
""",
    "configured_later": """# A configuration that comes after a generation's first ack is in force once it is acked.
worker A
place L on A                              => COMMITTED A@1
pull L A@1                                => PULLING 1 after 0
append L text "a"                         => APPENDED 1
append L config "c1"                      => APPENDED 2
append L text "b"                         => APPENDED 3
release L A@1                             => ITEMS 1..3
ack L A@1 1                               => ACKED 1
ack L A@1 2                               => ACKED 2
check live L config="c1"
ack L A@1 3                               => ACKED 3
""",
}
