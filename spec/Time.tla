-------------------------------- MODULE Time --------------------------------
(***************************************************************************)
(* Time: how long a live may stand still, and how often it is placed anew. *)
(* One live, one clock.  Every time is kept as a distance from now, so the *)
(* clock needs no end: an age stops growing where nothing compares it with *)
(* anything larger.  Numbers of items and generations are distances too.   *)
(*                                                                         *)
(* Time passes in ticks.  A look happens in the tick in which it is due,   *)
(* and whoever was told RECOVER places the live, or dies, in the same      *)
(* tick: where these are late, every bound below is later by as much.      *)
(* Everything else happens whenever it likes, or never: producers push and *)
(* interrupt, connections come and go, a runtime starts, acks, asks for    *)
(* time, crashes, or hangs, which is to do nothing.  Some Worker always    *)
(* has a free slot.  Moves, lifetimes and lost Workers are left to the     *)
(* other modules.  spec/time.py reaches the same states with the Python    *)
(* functions.                                                              *)
(***************************************************************************)
EXTENDS Integers

CONSTANTS
  ClaimWait, AckWait, StartWaitMax, Lease, BackoffMax, PoisonMax,   \* as in limits.py, in ticks
  Items,      \* items that are accepted and not acked, at most
  Lapses,     \* replicas in a row that are told RECOVER and die
  Window,     \* ticks in which generations are counted
  Most,       \* generations in a window without an ack
  On,         \* groups: interrupts, crashes, busy, counted
  Mutant

VARIABLES
  slot,            \* of the current generation: starting, running, vacant
  pend, out,       \* items that are not acked, and how many of them are released
  deaths,          \* generations that died with the item at the head
  at,              \* when the next look is due; None: on no agenda
  note,            \* the age of the note with the cursors of now
  stalled,         \* the stall that was written down has the cursors of now
  tries, starts,   \* RECOVER was told so often; commits since the last ack that found nobody active
  since, claimed,  \* the age of the commit, while unclaimed; of the claim
  work,            \* a replica was told RECOVER and is at it
  still,           \* how long the generation has owed something and shown no progress
  win, born        \* the age of a window that begins with a commit, and the commits in it: no ack came since

store == <<slot, pend, out, deaths, at, note, stalled, tries, starts, since, claimed>>
vars == <<store, work, still, win, born>>

None == -1
Has(group) == group \in On
Broken(mutant) == Mutant = mutant
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Older(age, most) == IF age = None THEN None ELSE Min(age + 1, most)
Sooner(when) == IF at = None THEN when ELSE Min(at, when)
Doubled(n) == Lease * 2^n
Backoff(n) == IF Broken("backoff-without-end") THEN Doubled(n) ELSE Min(BackoffMax, Doubled(n))
RECURSIVE Leases(_)
Leases(n) == IF n = 0 THEN 0 ELSE Min(BackoffMax, Doubled(n - 1)) + Leases(n - 1)

\* One more than it takes to wait for BackoffMax; starts beyond it are all alike.
StartsMax == 2 + CHOOSE n \in 0..20 : Doubled(n) >= BackoffMax /\ \A m \in 0..20 : Doubled(m) >= BackoffMax => n <= m
Starts(n) == IF Has("crashes") THEN Min(n, StartsMax) ELSE 0

Owes == slot # "running" \/ pend > 0
Needs == slot = "vacant" \/ stalled
Lapsed == Leases(Lapses)
ClaimedBy == 2 * ClaimWait + (IF Has("busy") THEN StartWaitMax - 1 ELSE 0) + Lapsed
AckedBy == AckWait + Max(AckWait, ClaimWait) + Lapsed
PlacedBy == BackoffMax + Lapsed
StillMax == 1 + Max(ClaimedBy, Max(AckedBy, PlacedBy))

Init ==
  /\ slot = "starting" /\ pend = 0 /\ out = 0 /\ deaths = 0
  /\ at = ClaimWait /\ note = None /\ stalled = FALSE /\ tries = 0 /\ starts = 0
  /\ since = 0 /\ claimed = None
  /\ work = FALSE /\ still = 0 /\ win = None /\ born = 0

----------------------------------------------------------------------------
(* Producers *)

AppendInput ==
  /\ pend < Items /\ pend' = pend + 1
  /\ at' = IF pend = 0 /\ ~Broken("append-without-a-look") THEN Sooner(AckWait) ELSE at
  /\ UNCHANGED <<slot, out, deaths, note, stalled, tries, starts, since, claimed, work, still, win, born>>

\* Everything before it is dropped.  It is no progress of the runtime: a standstill that was noted goes on.
Interrupt ==
  /\ Has("interrupts") /\ pend' = 1 /\ out' = 0 /\ deaths' = 0
  /\ at' = IF pend = 0 THEN Sooner(AckWait) ELSE at
  /\ note' = (IF Broken("interrupt-is-progress") THEN None ELSE note)
  /\ stalled' = (stalled /\ ~Broken("interrupt-is-progress"))
  /\ starts' = (IF Broken("interrupt-ends-the-crash-loop") THEN 0 ELSE starts)
  /\ UNCHANGED <<slot, tries, since, claimed, work, still, win, born>>

----------------------------------------------------------------------------
(* Connections, and the runtime *)

Claim ==
  /\ slot = "starting" /\ slot' = "running"
  /\ note' = None /\ stalled' = FALSE /\ since' = 0 /\ claimed' = (IF Has("crashes") THEN 0 ELSE None)
  /\ starts' = (IF Broken("claim-ends-the-crash-loop") THEN 0 ELSE starts)
  /\ still' = 0
  /\ UNCHANGED <<pend, out, deaths, at, tries, work, win, born>>

\* A connection is lost, and the next one pulls.
PullAgain ==
  /\ slot = "running" /\ note' = (IF Broken("pull-is-progress") THEN None ELSE note)
  /\ UNCHANGED <<slot, pend, out, deaths, at, stalled, tries, starts, since, claimed, work, still, win, born>>

Release(n) ==
  /\ slot = "running" /\ out < n /\ n <= pend /\ (deaths > 0 => n = 1)
  /\ out' = n /\ note' = (IF Broken("release-is-progress") THEN None ELSE note)
  /\ UNCHANGED <<slot, pend, deaths, at, stalled, tries, starts, since, claimed, work, still, win, born>>

Ack(n) ==
  /\ slot = "running" /\ n <= out
  /\ pend' = pend - n /\ out' = out - n /\ deaths' = 0 /\ starts' = 0
  /\ note' = None /\ stalled' = FALSE
  /\ still' = 0 /\ win' = None /\ born' = 0
  /\ UNCHANGED <<slot, at, tries, since, claimed, work>>

\* The Worker reports that the live needs time: a runtime that works may say so as often as it likes, until it is too late.
Busy ==
  /\ Has("busy") /\ note # None
  /\ slot = "starting" => since < StartWaitMax \/ Broken("start-without-end")
  /\ note' = None /\ still' = (IF slot = "running" /\ ~stalled THEN 0 ELSE still)
  /\ UNCHANGED <<slot, pend, out, deaths, at, stalled, tries, starts, since, claimed, work, win, born>>

\* The runtime has ended.  Before its first ack, again and again, it is not placed again at once.
Crash ==
  LET count == IF claimed = BackoffMax THEN 0 ELSE starts
      wait == IF count = 0 \/ Broken("crash-without-backoff") THEN 0 ELSE Backoff(count - 1)
  IN
  /\ Has("crashes") /\ slot # "vacant" /\ slot' = "vacant"
  /\ starts' = count /\ at' = wait
  /\ note' = None /\ stalled' = FALSE /\ since' = 0 /\ claimed' = None /\ still' = 0
  /\ UNCHANGED <<pend, out, deaths, tries, work, win, born>>

----------------------------------------------------------------------------
(* Replicas *)

Told(n) == /\ tries' = n + 1 /\ work' = TRUE
           /\ at' = IF Broken("recover-without-lease") THEN None ELSE Backoff(n)

Look ==
  LET period == IF slot = "starting" THEN ClaimWait ELSE AckWait
      ripe == note # None /\ (note >= period \/ Broken("note-without-its-time"))
  IN
  /\ at = 0 /\ ~work
  /\ CASE Needs -> Told(tries) /\ UNCHANGED <<note, stalled>>
       [] ~Needs /\ ~Owes -> at' = None /\ tries' = 0 /\ UNCHANGED <<note, stalled, work>>
       [] ~Needs /\ Owes /\ note = None ->
            /\ note' = (IF Broken("wake-without-a-note") THEN None ELSE 0) /\ tries' = 0
            /\ at' = (IF Broken("wake-without-a-note") THEN 0 ELSE period)
            /\ UNCHANGED <<stalled, work>>
       [] ~Needs /\ Owes /\ ripe -> stalled' = TRUE /\ Told(0) /\ UNCHANGED note
       [] OTHER -> at' = period - note /\ tries' = 0 /\ UNCHANGED <<note, stalled, work>>
  /\ UNCHANGED <<slot, pend, out, deaths, starts, since, claimed, still, win, born>>

\* Whoever was told RECOVER commits the next generation.  With input in its hands the one before died of the first item.
Place ==
  LET poison == out > 0 /\ deaths + 1 >= PoisonMax IN
  /\ work /\ Needs /\ work' = FALSE
  /\ slot' = "starting" /\ out' = 0
  /\ pend' = (IF poison THEN pend - 1 ELSE pend)
  /\ deaths' = (IF poison THEN 0 ELSE IF out > 0 THEN deaths + 1 ELSE deaths)
  /\ at' = ClaimWait /\ note' = None /\ stalled' = FALSE /\ tries' = 0
  /\ starts' = Starts(starts + (IF slot = "running" THEN 0 ELSE 1))
  /\ since' = 0 /\ claimed' = None /\ still' = 0
  /\ IF ~Has("counted") THEN UNCHANGED <<win, born>>
     ELSE IF win # None THEN win' = win /\ born' = born + 1
     ELSE \E begins \in BOOLEAN : IF begins THEN win' = 0 /\ born' = 1 ELSE UNCHANGED <<win, born>>

\* It died; or it finds that the live needs nothing any more.
Lapse ==
  /\ work /\ work' = FALSE /\ (Needs => tries <= Lapses)
  /\ UNCHANGED <<store, still, win, born>>

----------------------------------------------------------------------------
Tick ==
  /\ at # 0 /\ ~work
  /\ at' = (IF at = None THEN None ELSE at - 1)
  /\ note' = Older(note, Max(ClaimWait, AckWait))
  /\ since' = (IF slot = "starting" /\ Has("busy") THEN Min(since + 1, StartWaitMax) ELSE 0)
  /\ claimed' = Older(claimed, BackoffMax)
  /\ still' = (IF Owes THEN Min(still + 1, StillMax) ELSE 0)
  /\ win' = (IF win = None \/ win + 1 = Window THEN None ELSE win + 1)
  /\ born' = (IF win' = None THEN 0 ELSE born)
  /\ UNCHANGED <<slot, pend, out, deaths, stalled, tries, starts, work>>

Next ==
  \/ AppendInput \/ Interrupt \/ Claim \/ PullAgain \/ Busy \/ Crash
  \/ Look \/ Place \/ Lapse \/ Tick
  \/ \E n \in 1..Items : Release(n) \/ Ack(n)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
\* A generation that nobody claims is replaced.
Claimed == slot = "starting" => still <= ClaimedBy

\* No ack for two periods: replaced, whatever producers and connections do.
Replaced == slot = "running" => still <= AckedBy

\* A generation that has ended is followed by the next.
Restarted == slot = "vacant" => still <= PlacedBy

\* Nobody is replaced who has not stood still for a whole period since the look that woke it.
Patient == LET period == IF slot = "starting" THEN ClaimWait ELSE AckWait
           IN stalled => still >= period /\ (note # None => note >= period)

\* At most so many generations in a window without an ack.
Paced == born <= Most

\* What must happen later is on the agenda.
I7 == at # None \/ work \/ ~Owes

\* A replica acts on what it was told, a look that is due is taken, and nobody does infinitely much in one tick.
Fair == SF_vars(Tick) /\ WF_vars(Look) /\ WF_vars(Place) /\ WF_vars(Lapse)
FairSpec == Spec /\ Fair

\* Nothing can keep the clock from going on while something is owed, so what must happen within a bound does happen.
Passes == []<><<Tick>>_vars \/ []<>~Owes
Progress == still > 0 ~> still = 0
=============================================================================
