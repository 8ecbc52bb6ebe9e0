------------------------------- MODULE Homes -------------------------------
(***************************************************************************)
(* Ownership on a store that forgets: DHSched.tla, and beside it losses.   *)
(* A loss takes the store back to an earlier state, while agents, their    *)
(* messages and the room stay as they are.  Between the loss and `enter'   *)
(* the connections that outlived it may still run every step but those     *)
(* that give out numbers.  The product lets less run: all steps compare    *)
(* the server's name but release_input and ack_input.  `enter' lets the    *)
(* numbers of the store jump to a block that no home has had (in the       *)
(* product a random jump); nothing else changes.  Blocks are different,    *)
(* not ordered: a later home may have the lower one.                       *)
(*                                                                         *)
(* What is repaired, is repaired live by live: an agent takes the table of *)
(* another home whatever it has; a room that hears of another home forgets *)
(* what it heard and asks about every publisher anew.  Any Worker may send *)
(* any pull or release at any time, as in DHSched.tla, so what a runtime   *)
(* of a lost home says is there as well.                                   *)
(*                                                                         *)
(* The input of a live on such a store is Marks.tla, servers and what      *)
(* callers are told is Failover.tla.  spec/homes.py reaches the same       *)
(* states with the Python functions.                                       *)
(***************************************************************************)
EXTENDS DHSched

CONSTANTS
  Forgets,    \* how often the store forgets
  MaxHome     \* blocks, besides that of the first home

ASSUME Top >= (MaxHome + 1) * Step

Blocks == 1..MaxHome
PullTop == (MaxHome + 1) * (MaxPull + 2)
Clean == [lives |-> [l \in Lives |-> NoLive], slots |-> [w \in Workers |-> Nothing("none")],
          workers |-> [w \in Workers |-> Worker(IF w <= ND THEN "up" ELSE "none")],
          base |-> 0, floor |-> 0, term |-> 1, home |-> 0]
NobodySpeaks == [home |-> 0, high |-> 0, admitted |-> [n \in Numbers |-> FALSE]]

VARIABLES
  behind,      \* what a loss goes back to
  other,     \* the primary that was left, which may go on
  losses,    \* how often the store has forgotten, or was changed for the other
  entered,   \* the home of this server was entered
  used,      \* per block: a home has it
  spent,     \* per live and number: it was given out (1), a generation has had it (2)
  pulled,    \* per live, number and pull: it was granted to a connection
  tables,    \* per Worker: the home of the table that its agent has, and of the one on its way
  room       \* per live: the home that the room knows, the highest generation that it heard there, who may publish

around == <<behind, other, losses, entered, used, spent, pulled, tables, room>>
all == <<vars, around>>

HInit ==
  /\ Init
  /\ behind = Clean /\ other = Clean /\ losses = 0 /\ entered = TRUE
  /\ used = [b \in Blocks |-> FALSE]
  /\ spent = Nothing(0)
  /\ pulled = Nothing([p \in 1..PullTop |-> FALSE])
  /\ tables = [w \in Workers |-> <<0, 0>>]
  /\ room = [l \in Lives |-> NobodySpeaks]

----------------------------------------------------------------------------
(* The store *)

\* The number that a step has given out for a live, that of its new generation, and the pull; 0 for none.
NewNumber(l) ==
  LET n == store'.lives[l].issued IN IF store'.lives[l].st # "none" /\ n # store.lives[l].issued THEN n ELSE 0
NewEpoch(l) ==
  LET n == store'.lives[l].epoch IN IF store'.lives[l].st # "none" /\ n # store.lives[l].epoch THEN n ELSE 0
NewPull(l) ==
  LET L == store.lives[l]
      M == store'.lives[l]
  IN IF Has("connections") /\ M.active # 0 /\ M.pull # L.pull THEN M.pull ELSE 0

Count ==
  /\ spent' = [l \in Lives |-> [n \in Numbers |->
       IF n = NewEpoch(l) THEN 2 ELSE IF n = NewNumber(l) THEN 1 ELSE spent[l][n]]]
  /\ pulled' = [l \in Lives |-> [n \in Numbers |-> [p \in 1..PullTop |->
       pulled[l][n][p] \/ (n = store'.lives[l].epoch /\ p = NewPull(l))]]]

HIssue ==
  /\ entered \/ Broken("unentered-home-issues")
  /\ Issue /\ Count
  /\ UNCHANGED <<behind, other, losses, entered, used, tables, room>>

HRest == Rest /\ UNCHANGED around

\* An agent takes the table of another home, whatever it has.
TakesFrom(w, home) == tables[w][1] = home \/ ~Broken("agent-refuses-another-home")

HReport(w, reply, busy) ==
  /\ Report(w, reply, busy)
  /\ reply = "taken" => TakesFrom(w, store.home)
  /\ tables' = CASE reply = "taken" -> [tables EXCEPT ![w][1] = store.home]
                 [] reply = "late" -> [tables EXCEPT ![w][2] = store.home]
                 [] OTHER -> tables
  /\ UNCHANGED <<behind, other, losses, entered, used, spent, pulled, room>>

\* A table that was on its way: of another home it is taken, old or new. The next report finds that it is not the store's.
HTakeLate(w) ==
  LET A == agents[w] IN
  /\ A.proc = "on" /\ A.fresh # "no" /\ (A.fresh = "new" \/ tables[w][1] # tables[w][2])
  /\ agents' = [agents EXCEPT ![w] = Tidy([A EXCEPT !.table = A.late, !.late = Nothing("none"), !.fresh = "no"])]
  /\ tables' = [tables EXCEPT ![w] = <<tables[w][2], 0>>]
  /\ UNCHANGED <<store, released, bad, trouble, admitted>>
  /\ UNCHANGED <<behind, other, losses, entered, used, spent, pulled, room>>

\* A replica stops here, or the last flush was here.
Keep ==
  /\ losses < Forgets /\ behind = Clean /\ store # Clean
  /\ behind' = store
  /\ UNCHANGED <<vars, other, losses, entered, used, spent, pulled, tables, room>>

Forget ==
  /\ losses < Forgets /\ entered /\ store # behind
  /\ store' = behind /\ behind' = Clean /\ entered' = FALSE /\ losses' = losses + 1
  /\ other' = IF Has("two") THEN store ELSE Clean
  /\ released' = [l \in Lives |-> <<0, 0, 0>>]
  /\ UNCHANGED <<agents, bad, trouble, admitted, used, spent, pulled, tables, room>>

Enter(b) ==
  /\ ~entered /\ ~used[b] /\ b > store.home
  /\ store' = [store EXCEPT !.home = b,
                            !.base = IF Broken("base-does-not-jump") THEN @ ELSE b * Step,
                            !.floor = IF Broken("enter-raises-the-floor") THEN b * Step ELSE @]
  /\ entered' = TRUE /\ used' = [used EXCEPT ![b] = TRUE]
  /\ UNCHANGED <<agents, released, bad, trouble, admitted, behind, other, losses, spent, pulled, tables, room>>

\* Everybody goes back to the primary that was left: its home is still its own.
Back ==
  /\ Has("two") /\ losses < Forgets /\ entered /\ other # Clean
  /\ store' = other /\ other' = Clean /\ losses' = losses + 1 /\ behind' = Clean
  /\ released' = [l \in Lives |-> <<0, 0, 0>>]
  /\ UNCHANGED <<agents, bad, trouble, admitted, entered, used, spent, pulled, tables, room>>

----------------------------------------------------------------------------
(* The room *)

\* Of another home than it knew, it forgets what it heard, and nobody may publish until asked about anew.
Heard(l) ==
  IF room[l].home = store.home THEN room[l]
  ELSE [home |-> store.home,
        high |-> IF Broken("fence-keeps-its-highest") THEN room[l].high ELSE 0,
        admitted |-> IF Broken("publishers-stay-admitted") THEN room[l].admitted ELSE NobodySpeaks.admitted]

\* Dispatch is asked about a publisher, of whatever generation there ever was. One that is superseded in its own home is
\* heard until its successor is.
Ask(l, n) ==
  LET r == Heard(l)
      current == store.lives[l].epoch
  IN
  /\ Has("room") /\ spent[l][n] # 0 /\ store.lives[l].st = "open"
  /\ room' = [room EXCEPT ![l] = [r EXCEPT !.admitted[n] =
       IF n < Max(current, r.high) THEN @ ELSE n = current]]
  /\ UNCHANGED <<vars, behind, other, losses, entered, used, spent, pulled, tables>>

Hear(l, n) ==
  /\ Has("room") /\ room[l].admitted[n] /\ n >= room[l].high
  /\ room' = [room EXCEPT ![l].high = n]
  /\ UNCHANGED <<vars, behind, other, losses, entered, used, spent, pulled, tables>>

----------------------------------------------------------------------------
HNext ==
  \/ HIssue \/ HRest \/ Keep \/ Forget \/ Back
  \/ \E b \in Blocks : Enter(b)
  \/ \E w \in Workers : HTakeLate(w) \/ \E reply \in {"lost", "taken", "late"}, busy \in BOOLEAN : HReport(w, reply, busy)
  \/ \E l \in Lives, n \in Numbers : Ask(l, n) \/ Hear(l, n)

HSpec == HInit /\ [][HNext]_all

----------------------------------------------------------------------------
\* Within one history everything is as in DHSched.tla.
Within(action) == losses' # losses \/ action
H0 == [][Within(NumbersGrow)]_all
H1 == [][Within(OneWorkerEach)]_all
H3 == [][Within(OldWorkIsVoid)]_all

\* No number of a live is given out twice, has two generations, or gives out a pull twice, in whatever home.
Twice == [][HIssue => \A l \in Lives :
  /\ NewNumber(l) # 0 => spent[l][NewNumber(l)] = 0
  /\ NewEpoch(l) # 0 => spent[l][NewEpoch(l)] < 2
  /\ NewPull(l) # 0 => ~pulled[l][store.lives[l].epoch][NewPull(l)]]_all

\* To enter a home touches no live: only what the loss itself has taken back is repaired.
Quiet == [][used' # used =>
  /\ store'.lives = store.lives /\ store'.slots = store.slots /\ store'.workers = store.workers
  /\ \A l \in Lives : Needs(store', l) = Needs(store, l)]_all

\* A room that knows the store's home has nothing in its way that the live's current generation could not pass.
Audible == \A l \in Lives :
  entered /\ room[l].home = store.home /\ store.lives[l].st = "open" =>
    /\ room[l].high <= store.lives[l].epoch
    /\ \A n \in Numbers : room[l].admitted[n] => n <= store.lives[l].epoch

----------------------------------------------------------------------------
(* What must happen at last, once nothing more is forgotten *)

HClaim(l) == entered /\ Claim(l) /\ Count /\ UNCHANGED <<behind, other, losses, entered, used, tables, room>>
HRecover(l) == entered /\ Recover(l) /\ Count /\ UNCHANGED <<behind, other, losses, entered, used, tables, room>>

HFair ==
  /\ WF_all(\E b \in Blocks : Enter(b))
  /\ \A l \in Lives : WF_all(HRecover(l)) /\ WF_all(HClaim(l)) /\ WF_all(Look(l, TRUE, FALSE) /\ UNCHANGED around)
  /\ \A l \in Lives : \A ripe \in BOOLEAN : Has("stalls") => WF_all(Look(l, FALSE, ripe) /\ UNCHANGED around)
  /\ \A w \in Workers : WF_all(Healthy(w) /\ HReport(w, "taken", FALSE))
  /\ WF_all(\E w \in Workers, l \in Lives, n \in Numbers : Healthy(w) /\ Depart(w, l, n) /\ UNCHANGED around)
  /\ WF_all(\E w \in Workers, l \in Lives, n \in Numbers :
       Healthy(w) /\ Agent(w, l, n) /\ trouble' = trouble /\ UNCHANGED around)

FairHomes == HSpec /\ HFair

\* A live that is there has a runtime that has claimed it.
Flowing(l) == LET L == store.lives[l] IN L.active # 0 /\ agents[L.sel].runs[l][L.epoch] = "running"
Flows == \A l \in Lives : Alive(store, l) ~> (~Alive(store, l) \/ Flowing(l))
=============================================================================
