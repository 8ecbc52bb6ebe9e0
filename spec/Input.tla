------------------------------- MODULE Input -------------------------------
(***************************************************************************)
(* The input of one live: accepted once, handed to one runtime at a time,  *)
(* in order, and settled only when that runtime has acked it or it was     *)
(* dropped for a counted reason.  Ownership itself is DHSched.tla; here a  *)
(* generation just ends (crash, loss, planned move) and the next begins.   *)
(*                                                                         *)
(* Around the store stand one controller, which serves the latest pull,    *)
(* and one runtime, of the current generation.  Everything else that may   *)
(* still be sending (older pulls, older generations, repeated messages) is *)
(* modelled by what the store lets it do: nothing, or the same again.      *)
(* A reply gets lost, or arrives in part, or arrives late: late and then   *)
(* overtaken by a new pull is the same as lost, and late otherwise is the  *)
(* same as acked late.  spec/input.py reaches the same states with the     *)
(* Python functions.                                                       *)
(***************************************************************************)
EXTENDS Integers, Sequences

CONSTANTS
  Items,      \* how many items are ever appended
  MaxN,       \* numbers issued: generations and reservations
  MaxPull,
  Credit,     \* items a pull may have in hand
  PoisonMax,  \* generations that an item may kill
  On,         \* groups: boundaries, interrupts, crashes, losses, moves, closing, ghosts, looks, lifetimes
  Mutant

VARIABLES
  epoch, issued, sel, active, pull, slot, st,              \* the generation, its pull and its slot
  appended, released, acked, signs, boundary, suspect,     \* cursors, pending items, released stands at a boundary
  moving, hold,                                            \* the move's number, and where input stops before it
  sent,                                                    \* the last number accepted from the producer
  after,                                                   \* the controller's cursor for the latest pull, or None
  got,                                                     \* the last item that the runtime has
  taken, dropped,                                          \* per item: had by whoever may ack it; given up, counted
  due, note, stalled,                                      \* on the agenda; noted at, and stalled at, these cursors
  bad

owner == <<epoch, issued, sel, active, pull, slot, st>>
cursors == <<appended, released, acked, signs, boundary, suspect>>
planned == <<moving, hold>>
around == <<after, got>>
fate == <<taken, dropped>>
watch == <<due, note, stalled>>
vars == <<owner, cursors, planned, sent, around, fate, watch, bad>>

None == -1
NextOne == -2   \* hold: at the next boundary
Has(group) == group \in On
Broken(mutant) == Mutant = mutant
Lifetimes == Has("lifetimes")
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Other(w) == 3 - w
Range == 1..Items
Clean == <<0, 0>>

Init ==
  /\ epoch = 1 /\ issued = 1 /\ sel = 1 /\ active = FALSE /\ pull = 0 /\ slot = "starting" /\ st = "open"
  /\ appended = 0 /\ released = 0 /\ acked = 0 /\ signs = <<>> /\ boundary = FALSE /\ suspect = Clean
  /\ moving = 0 /\ hold = None /\ sent = 0 /\ after = None /\ got = 0
  /\ taken = [x \in Range |-> FALSE] /\ dropped = [x \in Range |-> FALSE]
  /\ due = TRUE /\ note = FALSE /\ stalled = FALSE /\ bad = ""

Flag(name, if) == bad' = IF bad = "" /\ if THEN name ELSE bad
Sign(x) == signs[x - acked]
\* A sentence ends at x, or an interrupt stands there, or a closing live has nothing after it.
IsBoundary(x) == Sign(x) \in {"T", "I"} \/ (st = "closing" /\ x = appended)
Trim(n) == SubSeq(signs, n - acked + 1, Len(signs))
\* Items up to n leave the queue without having been acked.
DropTo(n) ==
  /\ dropped' = [x \in Range |-> dropped[x] \/ (acked < x /\ x <= n)]
  /\ taken' = [x \in Range |-> taken[x] /\ (x <= acked \/ x > n)]

----------------------------------------------------------------------------
(* Producers *)

AppendInput(sign, n) ==
  /\ st = "open" /\ appended < Items
  /\ n = sent + 1 \/ (Broken("producer-repeat-accepted") /\ n <= sent)
  /\ sign = "T" => Has("boundaries")
  /\ appended' = appended + 1 /\ signs' = Append(signs, sign) /\ sent' = Max(sent, n)
  /\ UNCHANGED <<owner, released, acked, boundary, suspect, planned, around, fate, bad>>

Interrupt ==
  LET n == appended + 1
      spared == IF Broken("interrupt-spares-released") THEN released ELSE acked
  IN
  /\ Has("interrupts") /\ st = "open" /\ appended < Items
  /\ appended' = n /\ released' = Max(released, n - 1)
  /\ acked' = IF Broken("interrupt-spares-released") THEN acked ELSE n - 1
  /\ boundary' = (boundary /\ released' = released)
  /\ signs' = Append(SubSeq(signs, 1, spared - acked), "I")
  /\ DropTo(n - 1)
  /\ suspect' = Clean /\ sent' = sent + 1
  /\ hold' = IF hold >= 0 THEN n ELSE hold
  /\ UNCHANGED <<owner, moving, around, bad>>

----------------------------------------------------------------------------
(* The fence: pull, release, ack. Only the current generation gets this far. *)

\* `ghost': a delayed or repeated pull that nobody waits for any more; it may name any item
\* that was released.
Pull(a, ghost) ==
  LET to == IF Broken("pull-after-released") THEN released ELSE Min(Max(acked, a), released) IN
  /\ st # "ended" /\ slot \in {"starting", "running"} /\ pull < MaxPull
  /\ IF ghost THEN Has("ghosts") /\ a <= released ELSE a = got
  /\ active' = TRUE /\ pull' = pull + 1 /\ slot' = "running"
  /\ released' = IF Broken("pull-lowers-released") THEN to ELSE released
  /\ boundary' = (boundary /\ released' = released)
  /\ after' = IF ghost THEN None ELSE to
  /\ got' = IF ghost THEN got ELSE Max(got, to)
  /\ UNCHANGED <<epoch, issued, sel, st, appended, acked, signs, suspect, planned, sent, fate, bad>>

\* What `release_input' would hand out now.
First(a) == IF Broken("release-from-released") THEN released + 1 ELSE Max(Min(a, released), acked) + 1
Last(credit) ==
  LET most == Min(appended, acked + (IF suspect[1] = acked + 1 THEN 1 ELSE credit))
      ends == {x \in released + 1..most : IsBoundary(x)}
  IN CASE hold >= 0 -> Min(most, hold)
       [] hold = NextOne /\ ends # {} -> CHOOSE x \in ends : \A y \in ends : x <= y
       [] OTHER -> most

\* `had' items of the reply reach the runtime: all, none (the reply is lost, and asked for again), or some, and then
\* the connection is broken and the runtime has to pull again. What the runtime has already it ignores.
Release(credit, had) ==
  LET first == First(after)
      last == Last(credit)
      new == last > released
  IN
  /\ st # "ended" /\ active /\ after # None /\ first <= last /\ had <= last - first + 1
  /\ released' = Max(released, last)
  /\ boundary' = IF new THEN IsBoundary(last) ELSE boundary
  /\ hold' = IF new /\ hold = NextOne /\ IsBoundary(last) THEN last ELSE hold
  /\ after' = IF had = 0 THEN after ELSE IF had = last - first + 1 THEN last ELSE None
  /\ got' = IF had = 0 THEN got ELSE Max(got, first + had - 1)
  /\ taken' = [x \in Range |-> taken[x] \/ (first <= x /\ x < first + had)]
  /\ Flag("Order", first > Max(after, acked) + 1 \/ (had > 0 /\ first > got + 1 /\ Sign(first) # "I"))
  /\ UNCHANGED <<owner, appended, acked, signs, suspect, moving, sent, dropped>>

Finish(n) ==   \* With n acked; what is left is dropped.
  /\ st' = "ended" /\ active' = FALSE /\ slot' = "none"
  /\ released' = appended /\ acked' = appended /\ signs' = <<>> /\ suspect' = Clean
  /\ moving' = 0 /\ hold' = None /\ sent' = 0 /\ after' = None /\ got' = 0
  /\ dropped' = [x \in Range |-> dropped[x] \/ (n < x /\ x <= appended)]
  /\ taken' = [x \in Range |-> taken[x] /\ x <= n]
  /\ UNCHANGED <<epoch, issued, sel, pull, appended, boundary>>

Settle(n) ==
  IF st = "closing" /\ n = appended THEN Finish(n)
  ELSE /\ acked' = n /\ signs' = Trim(n)
       /\ suspect' = IF suspect[1] <= n THEN Clean ELSE suspect
       /\ UNCHANGED <<owner, appended, released, boundary, planned, sent, around, fate>>

\* The runtime acks what it has, now or much later.
Ack(n) ==
  /\ st # "ended" /\ active /\ acked < n
  /\ IF Broken("ack-above-released") THEN n > released /\ n <= appended ELSE n <= got /\ n <= released
  /\ Settle(n) /\ UNCHANGED bad

\* Only for the mutant: the fence lets an older generation's ack through.
AckOld(n) ==
  /\ Broken("ack-without-fence") /\ epoch > 1 /\ st # "ended" /\ active /\ acked < n /\ n <= released
  /\ Settle(n) /\ Flag("I3", st' = "ended")

----------------------------------------------------------------------------
(* Generations end and begin *)

NoRuntime == after' = None /\ got' = 0

Crash ==
  /\ Has("crashes") /\ slot \in {"starting", "running"}
  /\ slot' = "vacant" /\ active' = FALSE /\ pull' = pull + 1 /\ NoRuntime
  /\ taken' = [x \in Range |-> taken[x] /\ x <= acked]
  /\ UNCHANGED <<epoch, issued, sel, st, cursors, planned, sent, dropped, bad>>

\* The next generation is on w. `n' is acked or dropped by then.
Begin(w, n) ==
  LET number == IF moving # 0 /\ w = Other(sel) THEN moving ELSE issued + 1 IN
  /\ number <= MaxN
  /\ epoch' = number /\ issued' = Max(issued, number) /\ sel' = w
  /\ active' = FALSE /\ pull' = 0 /\ slot' = "starting"
  /\ released' = n /\ acked' = n /\ signs' = Trim(n)
  /\ boundary' = (boundary /\ released = n)
  /\ moving' = 0 /\ hold' = (IF Broken("hold-survives-move") THEN hold ELSE None) /\ NoRuntime
  /\ UNCHANGED <<st, appended, sent>>

Keep == taken' = [x \in Range |-> taken[x] /\ x <= acked] /\ UNCHANGED dropped

\* The generation died with input in its hands: its first item is suspect, and the last time it is dropped.
Deaths == IF suspect[1] = acked + 1 THEN suspect[2] ELSE 0
Poisoned == released > acked /\ Deaths + 1 >= PoisonMax
Suspect == IF released = acked THEN suspect ELSE <<acked + 1, Deaths + 1>>

\* Here again, after a crash; or elsewhere, also when the Worker was lost.
\* `back': its Worker was only silent and reports again: the generation has not died, and takes its count back.
Recover(w, back) ==
  /\ st # "ended"
  /\ IF back THEN Has("losses") /\ w # sel /\ slot # "vacant" ELSE slot = "vacant" \/ stalled
  /\ IF ~Poisoned THEN Begin(w, acked) /\ suspect' = (IF back THEN suspect ELSE Suspect) /\ Keep
     ELSE IF st = "closing" /\ appended = acked + 1 THEN Finish(acked)
     ELSE /\ Begin(w, acked + 1) /\ suspect' = Clean
          /\ dropped' = [dropped EXCEPT ![acked + 1] = TRUE]
          /\ taken' = [x \in Range |-> taken[x] /\ x <= acked]
  /\ UNCHANGED bad

Reserve ==
  /\ Has("moves") /\ st # "ended" /\ moving = 0 /\ issued < MaxN
  /\ issued' = issued + 1 /\ moving' = issued + 1
  /\ UNCHANGED <<epoch, sel, active, pull, slot, st, cursors, hold, sent, around, fate, bad>>

\* Nothing is half said: input may stop here. An interrupt that is next is not to be kept waiting.
Rests == acked = appended \/ (boundary /\ ~(released < appended /\ Sign(released + 1) = "I"))

Hold ==
  /\ moving # 0 /\ hold < 0
  /\ hold' = IF Rests THEN released ELSE NextOne
  /\ UNCHANGED <<owner, cursors, moving, sent, around, fate, bad>>

\* Cancelled, or expired.
Cancel ==
  /\ moving # 0
  /\ moving' = 0 /\ hold' = IF Broken("hold-survives-move") THEN hold ELSE None
  /\ UNCHANGED <<owner, cursors, sent, around, fate, bad>>

\* At the boundary nothing is in the runtime's hands, so nothing is repeated; forced, the next generation repeats it.
PlaceMove(forced) ==
  /\ moving # 0 /\ st # "ended"
  /\ forced \/ (hold >= 0 /\ released >= hold /\ (acked = released \/ Broken("move-before-the-ack")))
  /\ Begin(Other(sel), acked) /\ UNCHANGED suspect /\ Keep
  /\ Flag("Repeat", ~forced /\ \E x \in Range : x > acked /\ taken[x])

End(afterPending) ==
  /\ Has("closing") /\ st # "ended"
  /\ IF afterPending /\ acked < appended
     THEN /\ st' = "closing"
          /\ UNCHANGED <<epoch, issued, sel, active, pull, slot, cursors, planned, sent, around, fate>>
     ELSE Finish(acked)
  /\ UNCHANGED bad

\* A look finds that the live's lifetime is over: it ends as `end after pending' does. With the group the live has one.
Outlive ==
  /\ Lifetimes /\ st = "open" /\ due
  /\ IF acked < appended
     THEN /\ st' = "closing"
          /\ UNCHANGED <<epoch, issued, sel, active, pull, slot, cursors, planned, sent, around, fate>>
     ELSE Finish(acked)
  /\ UNCHANGED bad

----------------------------------------------------------------------------
(* Looking: what the steps above leave on the agenda, and what a look makes of it *)

Freed == moving # 0 /\ moving' = 0 /\ hold # None   \* The move is over, and with it the standstill it asked for.
\* Only an ack is progress of a runtime: an interrupt moves the cursor too, and a pull or a release moves others.
Same == epoch' = epoch /\ slot' = slot /\ (acked' = acked \/ appended' > appended)

\* A note, and a stall, are void once the runtime has moved, claims or is gone.
Watch ==
  /\ due' = \/ due
            \/ appended' > appended /\ acked = appended
            \/ slot' = "vacant" \/ epoch' # epoch \/ st' = "ended"
            \/ (moving = 0 /\ moving' # 0) \/ Freed
  /\ note' = (note /\ Same /\ st' # "ended" /\ ~Freed)
  /\ stalled' = (stalled /\ Same /\ st' # "ended")

\* `expired': the move has; `ripe': the note is a full period old.
Look(expired, ripe) ==
  LET gone == expired /\ hold # None
      noted == note /\ ~gone
      still == IF expired THEN None ELSE hold
      watched == \/ ~active \/ released > acked
                 \/ appended > released /\ ~(still >= 0 /\ released >= still)
      needs == slot = "vacant" \/ stalled
  IN
  /\ Has("looks") /\ st # "ended" /\ (due \/ needs)
  /\ expired => moving # 0
  /\ ripe => noted /\ watched /\ ~needs
  /\ moving' = (IF expired THEN 0 ELSE moving) /\ hold' = still
  /\ note' = (noted \/ (watched /\ ~needs))
  /\ stalled' = (stalled \/ ripe)
  /\ due' = (needs \/ watched \/ moving' # 0 \/ (Lifetimes /\ st = "open" /\ ~Broken("lifetime-leaves-the-agenda")))
  /\ UNCHANGED <<owner, cursors, sent, around, fate, bad>>

\* The Worker reports that this live needs time.
Busy ==
  /\ Has("looks") /\ note /\ note' = FALSE
  /\ UNCHANGED <<owner, cursors, planned, sent, around, fate, due, stalled, bad>>

----------------------------------------------------------------------------
Act ==
  \/ \E sign \in {"t", "T"}, n \in 1..Items : AppendInput(sign, n)
  \/ Interrupt
  \/ \E a \in 0..Items, ghost \in BOOLEAN : Pull(a, ghost)
  \/ \E credit \in 1..Credit, had \in 0..Credit : Release(credit, had)
  \/ \E n \in Range : Ack(n) \/ AckOld(n)
  \/ Crash \/ Reserve \/ Hold \/ Cancel \/ Outlive
  \/ \E w \in {1, 2}, back \in BOOLEAN : Recover(w, back)
  \/ \E yes \in BOOLEAN : PlaceMove(yes) \/ End(yes)

Next == (Act /\ Watch) \/ Busy \/ \E expired, ripe \in BOOLEAN : Look(expired, ripe)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
\* Nothing accepted is lost: what is settled was had by the runtime that acked it, or dropped and counted.
\* Until the claim nothing is released, so the first pull of a generation goes on after what is acked.
I6 == /\ acked <= released /\ released <= appended
      /\ slot = "starting" => released = acked
      /\ Len(signs) = appended - acked
      /\ \A x \in Range : x <= acked => taken[x] \/ dropped[x]
      /\ \A x \in Range : dropped[x] => x <= acked

\* Nothing is forgotten: whatever is to happen later is on the agenda.
I7 == \/ due
      \/ st # "ended" /\ slot # "vacant" /\ ~stalled /\ active /\ moving = 0 /\ acked = appended
         /\ ~(Lifetimes /\ st = "open")

\* An old generation's work ends no live.
I3 == bad # "I3"

\* What a runtime is handed and does not have is the item after its last, or an interrupt.
Order == bad # "Order"

\* A planned move that waits for the boundary repeats nothing.
Repeat == bad # "Repeat"

\* No move, no hold.
Moves == moving = 0 => hold = None

\* Every item of a producer is stored once.
Once == st # "ended" => sent = appended
=============================================================================
