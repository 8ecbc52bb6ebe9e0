"""Short scenarios for single checks that no scenario of tests/scenarios needs for its story, in the same language.

Each is there for the mutants that name it (mutants.py).
"""

from __future__ import annotations

from tests.conformance.short_input_scenarios import INPUT

OWNERSHIP = {
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
    "recovered_on_an_empty_one": """# A Worker without any load is the emptiest of equals.
worker A capacity=4
worker B capacity=4
worker C
place M on B                              => COMMITTED B@1
place L on C                              => COMMITTED C@1
expire C                                  => EXPIRED 1
place L from 1 on gpu=B=A cause recover   => COMMITTED A@2
""",
    "reassigned_in_place": """# A slot that is written anew where it is frees nothing: nobody who waits is woken.
limits starts_create_max=1 starts_recover_max=1
worker A capacity=4
worker B
place L on A                              => COMMITTED A@1
place M on B                              => COMMITTED B@1
expire B                                  => EXPIRED 1
look M                                    => RECOVER B@1 lost
place M from 1 in gpu cause recover       => STARTING
check agenda M in=2s
place L from 1 on A                       => COMMITTED A@2
check agenda M in=2s
""",
    "revived_while_cordoned": """# Lives of a Worker that comes back are looked at now, also where it takes no others.
worker A
place L on A                              => COMMITTED A@1
cordon A                                  => WORKER_SET cordoned
expire A                                  => EXPIRED 1
look L                                    => RECOVER A@1 lost
place L from 1 in gpu cause recover       => FULL
check agenda L in=2s
report A                                  => REPORTED
check agenda L in=0s
""",
    "reserved_number_at_the_floor": """# A number that was reserved and is the floor now is not committed.
limits term_step=2
worker A
worker B
place L on A                              => COMMITTED A@1
reserve L from 1 on B                     => RESERVED B@2
new_term 1                                => NEW_TERM 2 floor 2
place L from 1 on B                       => COMMITTED B@3
""",
    "equally_empty_at_a_budget": """# Of two that are equally empty, the one below its budget.
limits starts_create_max=2 starts_recover_max=1
worker A capacity=4
worker B capacity=4
place L on A                              => COMMITTED A@1
place M on B                              => COMMITTED B@1
pull M B@1                                => PULLING 1 after 0
place N in gpu                            => COMMITTED B@1
""",
    "start_as_slow_as_it_may_be": """# A start that takes exactly as long as it may changes no budget.
limits start_quick_ms=100 start_slow_ms=1000
worker A capacity=4
place L on A                              => COMMITTED A@1
pull L A@1                                => PULLING 1 after 0
check worker A pace=2
place M on A                              => COMMITTED A@1
wait 1s
pull M A@1                                => PULLING 1 after 0
check worker A pace=2
""",
    "claimed_quickly_while_cordoned": """# A quick start wakes nobody for a Worker that takes no lives.
limits starts_create_max=1 starts_recover_max=1
worker A capacity=4
worker B
place L on A                              => COMMITTED A@1
place M on B                              => COMMITTED B@1
expire B                                  => EXPIRED 1
look M                                    => RECOVER B@1 lost
place M from 1 in gpu cause recover       => STARTING
cordon A                                  => WORKER_SET cordoned
pull L A@1                                => PULLING 1 after 0
check agenda M in=2s
""",
}
SHORT_SCENARIOS = {**OWNERSHIP, **INPUT}
"""Every short scenario by its name."""
