------------------------------- MODULE Marks -------------------------------
(***************************************************************************)
(* The input of one live on a store that forgets: a power cut or a         *)
(* failover takes it back to an earlier state, while the runtimes, the     *)
(* controllers and their messages stay as they are.  Numbers cannot tell   *)
(* the two histories apart, so every append draws a mark, and pulls,       *)
(* releases and acks name the mark of the item that they go by.            *)
(*                                                                         *)
(* A mark is 1, 2, 3, ... in the order of the appends, whether they were   *)
(* forgotten or not, and negative for an interrupt.  A runtime's trail is  *)
(* where it begins and every item that it has, as <<number, mark>>.  Any   *)
(* message that it ever sent names one of its items, or nothing, and may   *)
(* arrive at any time, any number of times.  The same holds of a           *)
(* controller's grant, which begins with what the pull named.  Where it    *)
(* begins a runtime does not name: the store may forget why everything up  *)
(* to there was settled (mutant begin-is-named).                           *)
(* Ownership is DHSched.tla: here a generation just gives way to the next, *)
(* and a number that was forgotten may be given out again.  spec/marks.py  *)
(* reaches the same states with the Python functions.                      *)
(***************************************************************************)
EXTENDS Integers, Sequences

CONSTANTS
  Appends,    \* how many items are ever appended, in all histories
  MaxN,       \* generations of one history
  Grants,     \* pulls that are ever granted
  Forgets,    \* how often the store forgets
  On,         \* groups: interrupts, ghosts (messages that come late, or twice)
  Mutant

VARIABLES
  epoch, sel, active, pull,        \* the generation and its pull
  released, acked, mark, hist,     \* cursors, the mark of item `acked', the marks of all items
  kept,                            \* the state that a loss goes back to
  losses, drawn,                   \* how many losses there were, and marks
  grants,                          \* what controllers were granted: <<Worker, epoch, pull, trail>>
  trails, heard,                   \* per Worker and epoch: the runtime's trail, and the grant that it listens to
  eaten,                           \* per mark: a runtime had it and acked it
  bad

owner == <<epoch, sel, active, pull>>
cursors == <<released, acked, mark, hist>>
around == <<grants, trails, heard>>
vars == <<owner, cursors, kept, losses, drawn, around, eaten, bad>>

Has(group) == group \in On
Broken(mutant) == Mutant = mutant
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Abs(a) == IF a < 0 THEN -a ELSE a
Workers == {1, 2}
Epochs == 1..MaxN
Nothing == <<0, 0>>
Last(trail) == trail[Len(trail)]
\* What a message of a runtime with this trail may name.
Name(trail, i) == IF i = 1 /\ (trail = <<>> \/ ~Broken("begin-is-named")) THEN Nothing ELSE trail[i]

Init ==
  /\ epoch = 1 /\ sel = 1 /\ active = FALSE /\ pull = 0
  /\ released = 0 /\ acked = 0 /\ mark = 0 /\ hist = <<>>
  /\ kept = <<1, 1, FALSE, 0, 0, 0, 0, <<>>>> /\ losses = 0 /\ drawn = 0
  /\ grants = <<>>
  /\ trails = [w \in Workers |-> [e \in Epochs |-> <<>>]]
  /\ heard = [w \in Workers |-> [e \in Epochs |-> 0]]
  /\ eaten = [m \in 1..Appends |-> FALSE]
  /\ bad = ""

Flag(name, if) == bad' = IF bad = "" /\ if THEN name ELSE bad
\* Item n is here, and is the one with this mark.
Here(n, m) == n <= Len(hist) /\ hist[n] = m
\* Below `acked' nothing is known.
Fits(n, m) == n = 0 \/ n < acked \/ (n = acked /\ m = mark) \/ (n > acked /\ Here(n, m))

----------------------------------------------------------------------------
AppendInput ==
  /\ drawn < Appends /\ drawn' = drawn + 1
  /\ hist' = Append(hist, drawn + 1)
  /\ UNCHANGED <<owner, released, acked, mark, kept, losses, around, eaten, bad>>

Interrupt ==
  LET n == Len(hist) IN
  /\ Has("interrupts") /\ drawn < Appends /\ drawn' = drawn + 1
  /\ hist' = Append(hist, -(drawn + 1))
  /\ acked' = n /\ released' = Max(released, n)
  /\ mark' = IF n > acked THEN hist[n] ELSE mark
  /\ UNCHANGED <<owner, kept, losses, around, eaten, bad>>

\* A runtime names the last item of its trail, or an earlier one if this is an old message; `told': the answer arrives.
\* A runtime that has nothing yet begins where it is told to, each time anew.
Pull(w, e, i, told) ==
  LET trail == trails[w][e]
      asked == Name(trail, i)
      from == Max(acked, asked[1])
      id == Len(grants) + 1
  IN
  /\ epoch = e /\ sel = w /\ id <= Grants
  /\ i <= Max(1, Len(trail))
  /\ (told \/ ~Has("ghosts")) => i >= Len(trail)
  /\ Fits(asked[1], asked[2]) \/ Broken("pull-ignores-the-mark")
  /\ active' = TRUE /\ pull' = pull + 1
  /\ released' = Min(Max(released, from), Len(hist))
  /\ grants' = Append(grants, <<w, e, pull + 1, <<asked>>>>)
  /\ heard' = IF told THEN [heard EXCEPT ![w][e] = id] ELSE heard
  /\ trails' = IF told /\ Len(trail) <= 1 THEN [trails EXCEPT ![w][e] = <<<<from, IF from = acked THEN mark ELSE 0>>>>] ELSE trails
  /\ Flag("Granted", told /\ \E k \in 2..Len(trail) : trail[k][1] > acked /\ ~Here(trail[k][1], trail[k][2]))
  /\ UNCHANGED <<epoch, sel, acked, mark, hist, kept, losses, drawn, eaten>>

\* What a runtime makes of items x to last: it takes the next one, or an interrupt, and pulls again on anything else.
RECURSIVE Take(_, _, _)
Take(trail, x, last) ==
  LET n == Last(trail)[1] IN
  IF x <= last /\ (x = n + 1 \/ (x > n /\ hist[x] < 0)) THEN Take(Append(trail, <<x, hist[x]>>), x + 1, last) ELSE trail

\* A grant's controller asks for what comes after an item of its trail, the last one unless the call was slow; `told': the
\* answer arrives, and goes on to the runtime if that listens to this grant.
Release(g, i, last, told) ==
  LET w == grants[g][1]
      e == grants[g][2]
      asked == grants[g][4][i]
      first == Max(Min(asked[1], released), acked) + 1
      after == Take(trails[w][e], first, last)
      listens == told /\ heard[w][e] = g
  IN
  /\ epoch = e /\ sel = w /\ active /\ pull = grants[g][3]
  /\ (told \/ ~Has("ghosts")) => i = Len(grants[g][4])
  /\ Fits(asked[1], asked[2]) \/ Broken("release-ignores-the-mark")
  /\ first <= last
  /\ released' = Max(released, last)
  /\ grants' = IF told THEN [grants EXCEPT ![g][4] = Append(@, <<last, hist[last]>>)] ELSE grants
  /\ trails' = IF listens THEN [trails EXCEPT ![w][e] = after] ELSE trails
  /\ heard' = IF listens /\ Len(after) - Len(trails[w][e]) # last - first + 1 THEN [heard EXCEPT ![w][e] = 0] ELSE heard
  /\ UNCHANGED <<owner, acked, mark, hist, kept, losses, drawn, eaten, bad>>

\* The connection is lost.
HangUp(w, e) ==
  /\ heard[w][e] # 0 /\ heard' = [heard EXCEPT ![w][e] = 0]
  /\ UNCHANGED <<owner, cursors, kept, losses, drawn, grants, trails, eaten, bad>>

\* A runtime acks an item of its trail, now or much later.
Ack(w, e, i) ==
  LET trail == trails[w][e]
      n == trail[i][1]
      m == trail[i][2]
      Mine(x) == \E k \in 2..Len(trail) : trail[k] = <<x, hist[x]>>
  IN
  /\ epoch = e /\ sel = w /\ active /\ (i > 1 \/ Broken("begin-is-named")) /\ acked < n /\ n <= released
  /\ Fits(n, m) \/ Broken("ack-ignores-the-mark")
  /\ acked' = n /\ mark' = m
  /\ eaten' = [x \in 1..Appends |-> eaten[x] \/ \E k \in 2..i : Abs(trail[k][2]) = x]
  /\ Flag("Consumed", \E x \in acked + 1..n : ~Mine(x) /\ ~eaten[Abs(hist[x])])
  /\ UNCHANGED <<owner, released, hist, kept, losses, drawn, around>>

\* Crash, loss or move: the next generation begins.
Recover(w) ==
  /\ epoch < MaxN
  /\ epoch' = epoch + 1 /\ sel' = w /\ active' = FALSE /\ pull' = 0 /\ released' = acked
  /\ UNCHANGED <<acked, mark, hist, kept, losses, drawn, around, eaten, bad>>

----------------------------------------------------------------------------
Now == <<epoch, sel, active, pull, released, acked, mark, hist>>

Keep ==
  /\ losses < Forgets /\ kept # Now /\ kept' = Now
  /\ UNCHANGED <<owner, cursors, losses, drawn, around, eaten, bad>>

Forget ==
  /\ losses < Forgets /\ losses' = losses + 1 /\ kept # Now
  /\ epoch' = kept[1] /\ sel' = kept[2] /\ active' = kept[3] /\ pull' = kept[4]
  /\ released' = kept[5] /\ acked' = kept[6] /\ mark' = kept[7] /\ hist' = kept[8]
  /\ UNCHANGED <<kept, drawn, around, eaten, bad>>

Next ==
  \/ AppendInput \/ Interrupt \/ Keep \/ Forget
  \/ \E w \in Workers : Recover(w)
  \/ \E w \in Workers, e \in Epochs, i \in 1..Appends + 1, told \in BOOLEAN : Pull(w, e, i, told)
  \/ \E g \in 1..Len(grants), last \in 1..Len(hist), told \in BOOLEAN :
       \E i \in 1..Len(grants[g][4]) : Release(g, i, last, told)
  \/ \E w \in Workers, e \in Epochs : HangUp(w, e) \/ \E i \in 1..Len(trails[w][e]) : Ack(w, e, i)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
\* The cursors are in order, and the record knows the mark of what was settled last.
Cursors == acked <= released /\ released <= Len(hist) /\ (acked = 0 \/ mark = hist[acked])

\* What is booked as acked was had by the runtime that acked it, or by one whose ack was forgotten.
Consumed == bad # "Consumed"

\* A runtime that goes on has no item that is not of this history.
Granted == bad # "Granted"
=============================================================================
