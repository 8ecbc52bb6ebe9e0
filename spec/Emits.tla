------------------------------- MODULE Emits -------------------------------
(***************************************************************************)
(* The messages that the runtimes of one live emit, on a store that        *)
(* forgets: a power cut or a failover takes it back to an earlier state,   *)
(* while the runtimes and their messages stay as they are.                 *)
(*                                                                         *)
(* The runtime of generation e numbers its messages from 1.  Every one of  *)
(* them may arrive at any time and any number of times, with what the      *)
(* runtime knew to be stored when it sent it (`told', now or earlier), and *)
(* so may those of a generation that was superseded long ago.  Ownership   *)
(* is DHSched.tla: here a generation just gives way to the next, whose     *)
(* number is not given out again by a store that has forgotten it.         *)
(* spec/emits.py reaches the same states with the Python functions.        *)
(***************************************************************************)
EXTENDS Integers, Sequences

CONSTANTS
  Says,       \* messages of one generation
  MaxN,       \* generations
  Forgets,    \* how often the store forgets
  On,         \* groups: none yet
  Mutant

VARIABLES
  epoch, active,    \* the generation, and whether it has claimed
  emits, last,      \* the messages that are stored, as <<epoch, n>>, and the last one that was
  kept, losses,     \* the state that a loss goes back to; how many losses there were
  issued,           \* the highest number that was ever given out
  said, told        \* per generation: messages of its runtime, and how many of them it knows to be stored

store == <<epoch, active, emits, last>>
vars == <<store, kept, losses, issued, said, told>>

Broken(mutant) == Mutant = mutant
Max(a, b) == IF a > b THEN a ELSE b
Epochs == 1..MaxN

Init ==
  /\ epoch = 1 /\ active = FALSE /\ emits = <<>> /\ last = <<0, 0>>
  /\ kept = <<1, FALSE, <<>>, <<0, 0>>>> /\ losses = 0 /\ issued = 1
  /\ said = [e \in Epochs |-> 0] /\ told = [e \in Epochs |-> 0]

----------------------------------------------------------------------------
Claim == ~active /\ active' = TRUE /\ UNCHANGED <<epoch, emits, last, kept, losses, issued, said, told>>

Say(e) ==
  /\ e <= issued /\ said[e] < Says /\ said' = [said EXCEPT ![e] = @ + 1]
  /\ UNCHANGED <<store, kept, losses, issued, told>>

\* `hears': the answer arrives.
Emit(e, n, t, hears) ==
  LET own == IF last[1] = e THEN last[2] ELSE 0
      again == n <= own /\ ~Broken("emit-twice")
  IN
  /\ (epoch = e /\ active) \/ Broken("emit-without-fence")
  /\ n <= Max(own, t) + 1 \/ Broken("emit-out-of-order")
  /\ emits' = IF again THEN emits ELSE Append(emits, <<e, n>>)
  /\ last' = IF again THEN last ELSE <<e, n>>
  /\ told' = IF hears THEN [told EXCEPT ![e] = Max(@, IF again THEN own ELSE n)] ELSE told
  /\ UNCHANGED <<epoch, active, kept, losses, issued, said>>

Recover ==
  /\ issued < MaxN /\ issued' = issued + 1 /\ epoch' = issued + 1 /\ active' = FALSE
  /\ UNCHANGED <<emits, last, kept, losses, said, told>>

----------------------------------------------------------------------------
Now == <<epoch, active, emits, last>>

Keep == losses < Forgets /\ kept # Now /\ kept' = Now /\ UNCHANGED <<store, losses, issued, said, told>>

Forget ==
  /\ losses < Forgets /\ losses' = losses + 1 /\ kept # Now
  /\ epoch' = kept[1] /\ active' = kept[2] /\ emits' = kept[3] /\ last' = kept[4]
  /\ UNCHANGED <<kept, issued, said, told>>

Next ==
  \/ Claim \/ Recover \/ Keep \/ Forget
  \/ \E e \in Epochs :
       \/ Say(e)
       \/ \E n \in 1..said[e], t \in 0..told[e], hears \in BOOLEAN : Emit(e, n, t, hears)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
\* The messages are stored by generation, and those of a generation by number: each once.
Ordered ==
  \A i \in 1..Len(emits) - 1 :
    emits[i][1] < emits[i + 1][1] \/ (emits[i][1] = emits[i + 1][1] /\ emits[i][2] < emits[i + 1][2])

\* What is missing before a message was stored once, its runtime knows that, and the store has lost it.
Whole ==
  \A i \in 1..Len(emits) : \A m \in 1..emits[i][2] - 1 :
    (\E k \in 1..i : emits[k] = <<emits[i][1], m>>) \/ (losses > 0 /\ m <= told[emits[i][1]])
=============================================================================
