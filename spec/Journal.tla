------------------------------- MODULE Journal -------------------------------
(***************************************************************************)
(* The journal of one live, on a store that forgets: a runtime writes an   *)
(* entry for each item that it consumes, and an ack brings what was        *)
(* written up to it.  Whatever is lost, repeated or late, the journal is   *)
(* about exactly the items that are acked.                                 *)
(*                                                                         *)
(* An entry is the sequence of items that it is about, each with the       *)
(* generation that had it: one item, or, after a runtime has written a     *)
(* shorter account, all of those before.  Every ack that was ever sent may *)
(* arrive at any time, any number of times.                                *)
(* Input, marks and ownership are the other modules: here an item is just  *)
(* the next number, and a generation gives way to the next, whose number   *)
(* was never given out before.  spec/journal.py reaches the same states    *)
(* with the product's functions.                                           *)
(***************************************************************************)
EXTENDS Integers, Sequences

CONSTANTS
  Items,      \* how many items there are
  MaxN,       \* generations
  Forgets,    \* how often the store forgets
  Acks,       \* how many different acks are ever sent
  On,         \* groups: replaces (a runtime writes a shorter account)
  Mutant

VARIABLES
  epoch, acked, last, list,   \* the store: the generation, the cursor, the last entry's number, the entries
  kept, losses,               \* the state that a loss goes back to, and how many losses there were
  begun,                      \* generations so far
  runs,                       \* per generation: <<pos, first, entries, acked pos, first, last, entries>>; empty before it
  acks                        \* what was sent: <<generation, n, drop, first, entries>>

vars == <<epoch, acked, last, list, kept, losses, begun, runs, acks>>

Has(group) == group \in On
Broken(mutant) == Mutant = mutant
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
RECURSIVE Flat(_)
Flat(entries) == IF entries = <<>> THEN <<>> ELSE Head(entries) \o Flat(Tail(entries))
Sent == {acks[i] : i \in 1..Len(acks)}

Init ==
  /\ epoch = 0 /\ acked = 0 /\ last = 0 /\ list = <<>>
  /\ kept = <<0, 0, 0, <<>>>> /\ losses = 0 /\ begun = 0
  /\ runs = [e \in 1..MaxN |-> <<>>] /\ acks = <<>>

\* The next generation is placed, claims, and reads the journal.
Begin ==
  LET first == last - Len(list) + 1 IN
  /\ begun < MaxN /\ begun' = begun + 1 /\ epoch' = begun + 1
  /\ runs' = [runs EXCEPT ![begun + 1] = <<acked, first, list, 0, first, last, list>>]
  /\ UNCHANGED <<acked, last, list, kept, losses, acks>>

\* A runtime, of this generation or an older one, consumes the next item and writes it down.
Work(e) ==
  LET r == runs[e] IN
  /\ r # <<>> /\ r[1] < Items
  /\ runs' = [runs EXCEPT ![e][1] = @ + 1, ![e][3] = Append(@, <<<<r[1] + 1, e>>>>)]
  /\ UNCHANGED <<epoch, acked, last, list, kept, losses, begun, acks>>

Replace(e) ==
  LET r == runs[e] IN
  /\ Has("replaces") /\ r # <<>> /\ Len(r[3]) > 1
  /\ runs' = [runs EXCEPT ![e][2] = @ + Len(r[3]), ![e][3] = <<Flat(r[3])>>]
  /\ UNCHANGED <<epoch, acked, last, list, kept, losses, begun, acks>>

Say(ack) == acks' = IF ack \in Sent THEN acks ELSE Append(acks, ack)
\* The entries from number `start' on, of those that begin with number `first'.
From(entries, first, start) == SubSeq(entries, start - first + 1, Len(entries))

\* The ack of everything so far brings what was written since the last one.
Ack(e) ==
  LET r == runs[e]
      end == r[2] + Len(r[3]) - 1
      start == Max(r[6] + 1, r[2])
  IN
  /\ r # <<>> /\ (end # r[6] \/ r[2] # r[5]) /\ Len(acks) < Acks
  /\ Say(<<e, r[1], r[2] - 1, start, From(r[3], r[2], start)>>)
  /\ runs' = [runs EXCEPT ![e] = <<r[1], r[2], r[3], r[1], r[2], end, r[3]>>]
  /\ UNCHANGED <<epoch, acked, last, list, kept, losses, begun>>

\* After a reconnect the pull tells where the journal ends, and the last ack is sent again with what is missing.
Again(e) ==
  LET r == runs[e]
      written == IF Broken("again-with-what-is-not-acked") THEN r[3] ELSE r[7]
      start == Max(last + 1, r[5])
  IN
  /\ epoch = e /\ r # <<>> /\ r[4] > 0 /\ Len(acks) < Acks
  /\ Say(<<e, r[4], r[5] - 1, start, From(written, r[5], start)>>)
  /\ UNCHANGED <<epoch, acked, last, list, kept, losses, begun, runs>>

\* The store takes an ack: the cursor and the journal, or neither.
Take(ack) ==
  LET n == ack[2]
      drop == ack[3]
      first == ack[4]
      end == first + Len(ack[5]) - 1
      written == Max(last, drop)
      dropped == Max(0, Min(drop, last) - (last - Len(list)))
      repeats == IF Broken("journal-repeats") THEN 0 ELSE written + 1 - first
      gap == first > written + 1
  IN
  /\ ack[1] = epoch \/ Broken("journal-without-fence")
  /\ ~gap \/ Broken("gap-is-taken") \/ Broken("ack-without-its-journal")
  /\ acked' = Max(acked, n)
  /\ IF gap /\ Broken("ack-without-its-journal") THEN UNCHANGED <<last, list>>
     ELSE /\ list' = SubSeq(list, dropped + 1, Len(list)) \o SubSeq(ack[5], Max(0, repeats) + 1, Len(ack[5]))
          /\ last' = Max(written, end)
  /\ UNCHANGED <<epoch, kept, losses, begun, runs, acks>>

Now == <<epoch, acked, last, list>>

Keep ==
  /\ losses < Forgets /\ kept # Now /\ kept' = Now
  /\ UNCHANGED <<epoch, acked, last, list, losses, begun, runs, acks>>

Forget ==
  /\ losses < Forgets /\ kept # Now /\ losses' = losses + 1
  /\ epoch' = kept[1] /\ acked' = kept[2] /\ last' = kept[3] /\ list' = kept[4]
  /\ UNCHANGED <<kept, begun, runs, acks>>

Next ==
  \/ Begin \/ Keep \/ Forget
  \/ \E e \in 1..MaxN : Work(e) \/ Replace(e) \/ Ack(e) \/ Again(e)
  \/ \E i \in 1..Len(acks) : Take(acks[i])

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
\* The journal is about the items that are acked: each once, in order, and no other.
Exact == Len(Flat(list)) = acked /\ \A x \in 1..acked : Flat(list)[x][1] = x

\* The generation that owns the live knows all that stands in the journal.
Known ==
  epoch > 0 => \A x \in 1..Len(Flat(list)) :
    \E y \in 1..Len(Flat(runs[epoch][3])) : Flat(runs[epoch][3])[y] = Flat(list)[x]
=============================================================================
