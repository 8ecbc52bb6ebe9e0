------------------------------ MODULE DHSched ------------------------------
(***************************************************************************)
(* Ownership: who may consume a live's input, and on which Worker it has   *)
(* its slot.  Each action is one step of the store (one script, atomic),   *)
(* or one thing that an agent does on its own machine.  `store' is what    *)
(* dhsched.ownership.state.State holds, without what only time and         *)
(* counters add; spec/ownership.py says field by field how the two         *)
(* correspond, and reaches the very same set of states with the Python     *)
(* functions.                                                              *)
(*                                                                         *)
(* Messages are not modelled as values in flight.  A pull, a release or a  *)
(* place of any generation may arrive at any time and any number of times: *)
(* that is every delay, duplicate and zombie at once.  Only `depart' is    *)
(* bound to what its sender did, because the store relies on its word: it  *)
(* arrives, late and repeatedly, once the agent has said it.               *)
(* Time is not modelled either: a look finds things due, or not.           *)
(*                                                                         *)
(* Lives, Workers and numbers are 1, 2, ...; 0 is nobody.  Workers 1..ND   *)
(* are up in the beginning; Worker w+ND is the next boot on the device of  *)
(* Worker w.  `On' switches groups of actions on.                          *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
  NL, NW, ND,   \* lives, Workers (boots), devices
  Cap,          \* slots per Worker
  MaxN,         \* numbers that one term may issue for one id ...
  Top,          \* ... and the highest number at all
  Step,         \* numbers set aside for one term
  MaxTerm, MaxPull,
  MaxTrouble,   \* how often something may go wrong; 0: as often as it likes, uncounted
  Cutovers,     \* moves under way from one Worker
  On,           \* groups: see the actions
  Mutant        \* "" or the name of a rule that is broken on purpose (spec/mutants.py)

Lives == 1..NL
Workers == 1..NW
Numbers == 1..Top

VARIABLES
  store,     \* lives, slots, workers, base, floor, term; home: the block that numbers come from, 0 but in Homes.tla
  agents,    \* per Worker: its process, its copy of its slot table, what it runs, finished, said depart of;
             \* a table still on its way, and whether it is newer than the copy; what it ever finished
  released,  \* per live: the latest <<epoch, pull, Worker>> that a release was granted to
  bad,       \* the name of the first trace property that was broken, or ""
  trouble,   \* how much has gone wrong so far
  admitted   \* only for the mutant read-check-write-admission

vars == <<store, agents, released, bad, trouble, admitted>>

\* The product keeps MaxN <= Step by raising the base behind a number that is Step above base and floor.
ASSUME ND <= NW /\ MaxN <= Step

----------------------------------------------------------------------------
(* Values *)

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Has(group) == group \in On
Broken(mutant) == Mutant = mutant
Lifetimes == Has("lifetimes")   \* Every live has a lifetime.

NoLive == [st |-> "none", epoch |-> 0, issued |-> 0, sel |-> 0, active |-> 0, pull |-> 0,
           target |-> 0, number |-> 0, hold |-> FALSE, note |-> FALSE, stalled |-> FALSE,
           due |-> FALSE, waits |-> FALSE]
Worker(st) == [st |-> st, mode |-> "ready", lost |-> FALSE]
Nothing(value) == [l \in Lives |-> [n \in Numbers |-> value]]
NoAgent == [proc |-> "off", table |-> Nothing("none"), runs |-> Nothing("none"), fin |-> Nothing(FALSE),
            said |-> Nothing(FALSE), late |-> Nothing("none"), fresh |-> "no", done |-> Nothing(FALSE)]

Init ==
  /\ store = [lives |-> [l \in Lives |-> NoLive],
              slots |-> [w \in Workers |-> Nothing("none")],
              workers |-> [w \in Workers |-> Worker(IF w <= ND THEN "up" ELSE "none")],
              base |-> 0, floor |-> 0, term |-> 1, home |-> 0]
  /\ agents = [w \in Workers |-> IF w <= ND THEN [NoAgent EXCEPT !.proc = "on"] ELSE NoAgent]
  /\ released = [l \in Lives |-> <<0, 0, 0>>]
  /\ bad = "" /\ trouble = 0 /\ admitted = [l \in Lives |-> 0]

----------------------------------------------------------------------------
(* The store: operators take a store and return the next one, as Draft does. *)

Slot(s, w, l, n) == IF w = 0 \/ n = 0 THEN "none" ELSE s.slots[w][l][n]
Current(s, l) == Slot(s, s.lives[l].sel, l, s.lives[l].epoch)
Load(s, w) == Cardinality({t \in Lives \X Numbers : s.slots[w][t[1]][t[2]] # "none"})
Placeable(s, w) == s.workers[w].st = "up" /\ s.workers[w].mode = "ready" /\ ~s.workers[w].lost
Room(s, w) == Placeable(s, w) /\ Load(s, w) < Cap
Known(s, w) == s.workers[w].st \in {"new", "up"}

Needs(s, l) ==
  LET L == s.lives[l] IN
  /\ L.st = "open"
  /\ \/ L.epoch <= s.floor
     \/ s.workers[L.sel].st = "gone" \/ s.workers[L.sel].lost
     \/ Current(s, l) = "vacant"
     \/ L.stalled

\* The first k lives that wait are due.
Wake(s, k) ==
  [s EXCEPT !.lives = [l \in Lives |->
    IF s.lives[l].waits /\ Cardinality({m \in 1..l - 1 : s.lives[m].waits}) < k
    THEN [s.lives[l] EXCEPT !.due = TRUE] ELSE s.lives[l]]]

\* The one writer of slots: nothing departs on a Worker that is gone, and its last slot takes its record along.
Write(s, w, l, n, to) ==
  LET from == s.slots[w][l][n]
      now == IF s.workers[w].st = "gone" /\ to = "departing" THEN "none" ELSE to
      t == [s EXCEPT !.slots[w][l][n] = now]
      fewer == (from # "none" /\ now = "none") \/ (from = "starting" /\ now # "starting")
  IN IF t.workers[w].st = "gone" /\ Load(t, w) = 0 THEN [t EXCEPT !.workers[w] = Worker("over")]
     ELSE IF Room(t, w) /\ fewer THEN Wake(t, 1) ELSE t

\* Room that is there, and that the live was woken for, is for the next one.
LeaveWaiting(s, l) ==
  LET t == [s EXCEPT !.lives[l].waits = FALSE]
  IN IF s.lives[l].waits /\ \E w \in Workers : Room(t, w) THEN Wake(t, 1) ELSE t

\* The Worker's own lives that wait for another place may have it here.
WakeOwn(s, w) ==
  [s EXCEPT !.lives = [l \in Lives |->
    IF s.lives[l].st = "open" /\ s.lives[l].sel = w /\ s.lives[l].waits
    THEN [s.lives[l] EXCEPT !.due = TRUE] ELSE s.lives[l]]]

EnterRoom(s, w) == WakeOwn(Wake(s, Cap - Load(s, w)), w)

\* What stood still under a hold is no stall, and it may flow again: look.
Unmoved(L) == [L EXCEPT !.target = 0, !.number = 0, !.hold = @ /\ Broken("hold-survives-move"),
                        !.note = @ /\ ~L.hold, !.due = @ \/ L.hold]

ClearMove(s, l, giveBack) ==
  LET L == s.lives[l]
      t == [s EXCEPT !.lives[l] = Unmoved(L)]
  IN IF L.target = 0 THEN s
     ELSE IF giveBack /\ ~Broken("move-keeps-its-slot") /\ Slot(s, L.target, l, L.number) = "reserved"
     THEN Write(t, L.target, l, L.number, "departing") ELSE t

ClearMovesTo(s, w) ==
  [s EXCEPT
    !.lives = [l \in Lives |-> IF s.lives[l].target = w THEN Unmoved(s.lives[l]) ELSE s.lives[l]],
    !.slots[w] = [l \in Lives |-> [n \in Numbers |->
      IF s.slots[w][l][n] = "reserved" THEN "departing" ELSE s.slots[w][l][n]]]]

\* The current generation has no runtime any more. The cursors moved, so no note and no stall stands.
Unclaim(L) == [L EXCEPT !.active = 0, !.pull = @ + 1, !.note = FALSE, !.stalled = FALSE, !.due = TRUE]

MakeGone(s, w) ==
  LET c == ClearMovesTo(s, w)
      owned == {l \in Lives : \E n \in Numbers : c.slots[w][l][n] \in {"starting", "running"}}
      t == [c EXCEPT
             !.workers[w].st = "gone",
             !.slots[w] = [l \in Lives |-> [n \in Numbers |->
               CASE c.slots[w][l][n] \in {"starting", "running"} -> "vacant"
                 [] c.slots[w][l][n] = "departing" -> "none"
                 [] OTHER -> c.slots[w][l][n]]],
             !.lives = [l \in Lives |-> IF l \in owned THEN Unclaim(c.lives[l]) ELSE c.lives[l]]]
  IN IF Load(t, w) = 0 THEN [t EXCEPT !.workers[w] = Worker("over")] ELSE t

Fresh(s, issued) == Max(issued, Max(s.base, s.floor)) + 1
Issuable(s, n) == n <= Max(s.floor, s.home * Step) + MaxN /\ n <= Top
PullBase(s) == IF Broken("pulls-do-not-jump") THEN 0 ELSE s.home * (MaxPull + 2)

----------------------------------------------------------------------------
(* place: the only way to a new generation *)

\* It holds the live's slot, or its reservation, or it has a free slot.
Takes(s, l, w, cause) ==
  /\ Placeable(s, w)
  /\ \/ cause # "create" /\ w \in {s.lives[l].sel, s.lives[l].target}
     \/ /\ Load(s, w) < Cap \/ (Broken("read-check-write-admission") /\ admitted[l] = w)
        /\ cause = "create" => \A m \in Lives : ~s.lives[m].waits

CreateOn(s, l, w) ==
  LET n == Fresh(s, 0)
      t == [s EXCEPT !.lives[l] = [NoLive EXCEPT !.st = "open", !.epoch = n, !.issued = n, !.sel = w, !.due = TRUE]]
  IN Write(t, w, l, n, "starting")

Number(s, l, w) ==
  LET L == s.lives[l] IN
  IF L.target = w /\ (L.number > s.floor \/ Broken("reserved-below-floor"))
                  /\ (L.number > s.base \/ Broken("reserved-in-another-home"))
  THEN L.number ELSE Fresh(s, L.issued)

CommitOn(s, l, w) ==
  LET L == s.lives[l]
      n == Number(s, l, w)
      reserved == L.target = w
      a == ClearMove(s, l, ~reserved)
      was == IF reserved THEN L.number ELSE IF w = L.sel THEN L.epoch ELSE n
      b == [a EXCEPT !.slots[w][l] = [[@ EXCEPT ![was] = "none"] EXCEPT ![n] = "starting"]]
      c == IF w = L.sel THEN b
           ELSE Write(b, L.sel, l, L.epoch, IF Current(b, l) = "vacant" THEN "none" ELSE "departing")
  IN [LeaveWaiting(c, l) EXCEPT !.lives[l] =
       [@ EXCEPT !.epoch = n, !.issued = Max(n, L.issued), !.sel = w,
                 !.active = IF Broken("commit-keeps-active") THEN @ ELSE 0,
                 !.pull = 0, !.note = FALSE, !.stalled = FALSE, !.due = TRUE]]

Ownership(s, l) == <<s.lives[l].epoch, s.lives[l].sel, s.lives[l].active>>
Flag(name, if) == bad' = IF bad = "" /\ if THEN name ELSE bad
Trouble == IF MaxTrouble = 0 THEN UNCHANGED trouble ELSE trouble < MaxTrouble /\ trouble' = trouble + 1
Spared(w) == Has("spared") /\ w = NW   \* The Worker that stays free, for liveness.

Create(l, w) ==
  /\ store.lives[l].st = "none"
  /\ Takes(store, l, w, "create")
  /\ Issuable(store, Fresh(store, 0))
  /\ store' = CreateOn(store, l, w)
  /\ admitted' = [admitted EXCEPT ![l] = 0]
  /\ UNCHANGED <<agents, released, bad, trouble>>

\* Work of epoch e: a replica that saw the live there, just now or a week ago.
Place(l, w, e, cause) ==
  LET L == store.lives[l] IN
  /\ L.st = "open"
  /\ e = L.epoch \/ Broken("no-source-epoch-guard")
  /\ cause = "reassign" => Has("reassign")
  /\ cause = "recover" => Needs(store, l) \/ Broken("recover-without-needs")
  /\ cause = "drain" => store.workers[L.sel].mode = "draining"
  /\ cause = "move" => Has("moves") /\ w = L.target
  /\ Takes(store, l, w, cause)
  /\ Issuable(store, Number(store, l, w))
  /\ store' = CommitOn(store, l, w)
  /\ IF e < L.epoch THEN Flag("I3", TRUE) ELSE Flag("Need", cause = "recover" /\ ~Needs(store, l))
  /\ UNCHANGED <<agents, released, trouble, admitted>>

\* Nobody has a free slot in the Pools that were named: the live joins those who wait.
PlaceNowhere(l) ==
  /\ Has("waits") /\ Needs(store, l) /\ \A w \in Workers : ~Room(store, w)
  /\ store' = [store EXCEPT !.lives[l].waits = TRUE]
  /\ UNCHANGED <<agents, released, bad, trouble, admitted>>

\* Nobody was named, because no Worker may take the live as things are configured: it waits nowhere.
PlaceForNobody(l) ==
  /\ Has("waits") /\ Needs(store, l)
  /\ store' = LeaveWaiting(store, l)
  /\ UNCHANGED <<agents, released, bad, trouble, admitted>>

\* A place that answers MOOT on the way: the live waits no more.
PlaceMoot(l) ==
  /\ Has("waits") /\ store.lives[l].st = "open" /\ ~Needs(store, l)
  /\ store' = LeaveWaiting(store, l)
  /\ UNCHANGED <<agents, released, bad, trouble, admitted>>

\* Only for the mutant: admission in two steps.
ReadRoom(l, w) ==
  /\ Broken("read-check-write-admission") /\ Room(store, w) /\ admitted[l] = 0
  /\ admitted' = [admitted EXCEPT ![l] = w]
  /\ UNCHANGED <<store, agents, released, bad, trouble>>

----------------------------------------------------------------------------
(* Planned moves *)

Reserve(l, w) ==
  LET L == store.lives[l]
      n == Fresh(store, L.issued)
      t == Write(store, w, l, n, "reserved")
  IN
  /\ Has("moves") /\ L.st = "open" /\ L.target = 0
  /\ Cardinality({m \in Lives : store.lives[m].sel = L.sel /\ store.lives[m].target # 0}) < Cutovers
  /\ w # L.sel /\ Room(store, w) /\ Issuable(store, n)
  /\ store' = [t EXCEPT !.lives[l] = [@ EXCEPT !.issued = n, !.target = w, !.number = n, !.due = TRUE]]
  /\ IF Has("timely") THEN Trouble ELSE UNCHANGED trouble
  /\ UNCHANGED <<agents, released, bad, admitted>>

Hold(l) ==
  /\ Has("moves") /\ store.lives[l].target # 0
  /\ store' = [store EXCEPT !.lives[l].hold = TRUE]
  /\ UNCHANGED <<agents, released, bad, trouble, admitted>>

Cancel(l) ==
  /\ Has("moves") /\ store.lives[l].target # 0
  /\ store' = ClearMove(store, l, TRUE)
  /\ UNCHANGED <<agents, released, bad, trouble, admitted>>

----------------------------------------------------------------------------
(* The fence *)

Guard(s, l, w, e) ==
  LET L == s.lives[l] IN
  /\ L.st = "open" /\ L.sel = w
  /\ L.epoch = e \/ Broken("no-epoch-in-guard")
  /\ e > s.floor \/ Broken("no-floor-in-guard")

Pull(l, w, e) ==
  LET L == store.lives[l]
      slot == Slot(store, w, l, e)
      t == IF slot = "starting" THEN LeaveWaiting(Write(store, w, l, e, "running"), l) ELSE store
  IN
  /\ Guard(store, l, w, e) /\ L.epoch = e /\ L.pull < PullBase(store) + MaxPull
  /\ slot \in {"starting", "running"} \cup (IF Broken("pull-takes-vacant") THEN {"vacant"} ELSE {})
  /\ store' = [t EXCEPT !.lives[l] = [@ EXCEPT !.active = w, !.pull = Max(@, PullBase(store)) + 1, !.note = @ /\ L.active # 0,
                                                  !.stalled = @ /\ L.active # 0]]
  /\ UNCHANGED <<agents, released, bad, trouble, admitted>>

MayRelease(s, l, w, e, p) ==
  /\ Guard(s, l, w, e) /\ s.lives[l].active = w
  /\ s.lives[l].pull = p \/ Broken("no-pull-no")

Later(x, y) == x[1] > y[1] \/ (x[1] = y[1] /\ x[2] > y[2])

Release(l, w, e, p) ==
  LET this == <<e, p, w>> IN
  /\ Has("trace") /\ MayRelease(store, l, w, e, p)
  /\ released' = [released EXCEPT ![l] = IF Later(@, this) THEN @ ELSE this]
  /\ Flag("I2", Later(released[l], this) \/ (released[l][1] = e /\ released[l][3] # w))
  /\ UNCHANGED <<store, agents, trouble, admitted>>

----------------------------------------------------------------------------
(* The end of a live, and looking *)

Finish(s, l) ==
  LET a == ClearMove(s, l, TRUE)
      L == a.lives[l]
      b == LeaveWaiting(Write(a, L.sel, l, L.epoch, IF Current(a, l) = "vacant" THEN "none" ELSE "departing"), l)
  IN [b EXCEPT !.lives[l] = [@ EXCEPT !.st = "ended", !.active = 0, !.note = FALSE, !.stalled = FALSE, !.due = TRUE]]

End(l) ==
  /\ Has("ends") /\ store.lives[l].st = "open"
  /\ store' = Finish(store, l)
  /\ UNCHANGED <<agents, released, bad, trouble, admitted>>

\* A look finds that the live's lifetime is over. With the group, every live has a lifetime, and so stays on the agenda.
Outlive(l) ==
  /\ Has("lifetimes") /\ store.lives[l].st = "open" /\ (store.lives[l].due \/ Needs(store, l))
  /\ store' = Finish(store, l)
  /\ UNCHANGED <<agents, released, bad, trouble, admitted>>

Sweep(l) ==
  LET L == store.lives[l] IN
  /\ L.st = "ended" /\ L.due
  /\ store' = [store EXCEPT !.lives[l] = NoLive,
                            !.base = IF Broken("epoch-restart-after-sweep") THEN @ ELSE Max(@, L.issued)]
  /\ UNCHANGED <<agents, released, bad, trouble, admitted>>

\* `expired': the move has; `ripe': the note is a full period old.
Look(l, expired, ripe) ==
  LET L == store.lives[l]
      a == IF expired THEN ClearMove(store, l, TRUE) ELSE store
      b == LeaveWaiting(a, l)
      noted == a.lives[l].note
      watched == L.active = 0   \* Without input only a claim is waited for.
  IN
  /\ L.st = "open" /\ (L.due \/ Needs(store, l))
  /\ expired => L.target # 0
  /\ Has("stalls") \/ ~watched \/ Needs(a, l)
  /\ ripe => noted /\ watched /\ ~Needs(a, l)
  /\ store' = CASE Needs(a, l) -> [a EXCEPT !.lives[l].due = TRUE]
                [] watched /\ ~noted -> [b EXCEPT !.lives[l].note = TRUE, !.lives[l].due = TRUE]
                [] watched /\ ripe -> [b EXCEPT !.lives[l].stalled = TRUE, !.lives[l].due = TRUE]
                [] ~watched /\ b.lives[l].target = 0 -> [b EXCEPT !.lives[l].due = Lifetimes /\ ~Broken("lifetime-leaves-the-agenda")]
                [] OTHER -> b
  /\ IF ripe THEN Trouble ELSE UNCHANGED trouble
  /\ UNCHANGED <<agents, released, bad, admitted>>

NewTerm ==
  LET floor == Max(store.term * Step, Max(store.floor, store.base) + Step) IN
  /\ Has("terms") /\ store.term < MaxTerm
  /\ store' = [store EXCEPT !.term = @ + 1, !.floor = floor]
  /\ UNCHANGED <<agents, released, bad, trouble, admitted>>

----------------------------------------------------------------------------
(* Workers, as the store sees them *)

\* What an agent acts on: whether a slot is claimed makes no difference to it, so a claim sends it no new table.
TableOf(s, w) ==
  [l \in Lives |-> [n \in Numbers |-> IF s.slots[w][l][n] = "running" THEN "starting" ELSE s.slots[w][l][n]]]

\* A tag that left the table never comes back, so that it was finished, and said to be, may be forgotten.
Tidy(a) ==
  LET kept(flags) == [l \in Lives |-> [n \in Numbers |-> flags[l][n] /\ a.table[l][n] # "none"]]
  IN [a EXCEPT !.fin = kept(@), !.said = kept(@)]

\* A report: late, or from a process that has died since. Its reply is lost, taken, or on its way.
Report(w, reply, busy) ==
  LET t == [store EXCEPT !.workers[w].st = "up", !.workers[w].lost = FALSE]
      revived == store.workers[w].lost
      a == IF ~Placeable(store, w) /\ Placeable(t, w) THEN EnterRoom(t, w) ELSE IF revived THEN WakeOwn(t, w) ELSE t
      Mine(l) == store.lives[l].st = "open" /\ store.lives[l].sel = w
      b == [a EXCEPT !.lives = [l \in Lives |->
             IF Mine(l) THEN [a.lives[l] EXCEPT !.note = @ /\ ~busy,
                                                !.due = @ /\ ~(revived /\ Broken("revival-clears-agenda"))]
             ELSE a.lives[l]]]
      A == agents[w]
  IN
  /\ Known(store, w) /\ A.proc # "off"
  /\ reply = "lost" \/ (Has("agents") /\ A.proc = "on")
  /\ reply = "late" => Has("late")
  /\ busy => Has("stalls")
  /\ store' = b
  /\ agents' = CASE reply = "lost" -> agents
                 [] reply = "late" -> [agents EXCEPT ![w].late = TableOf(store, w), ![w].fresh = "new"]
                 [] OTHER -> [agents EXCEPT ![w] =
                      Tidy([A EXCEPT !.table = TableOf(store, w), !.fresh = IF @ = "new" THEN "old" ELSE @])]
  /\ UNCHANGED <<released, bad, trouble, admitted>>

Expire(w) ==
  LET c == ClearMovesTo(store, w)
      mine == {l \in Lives : store.lives[l].st = "open" /\ store.lives[l].sel = w}
  IN
  /\ Has("losses") /\ Known(store, w) /\ ~store.workers[w].lost /\ ~Spared(w)
  /\ store' = [c EXCEPT !.workers[w].lost = TRUE,
                        !.lives = [l \in Lives |-> IF l \in mine THEN [c.lives[l] EXCEPT !.due = TRUE] ELSE c.lives[l]]]
  /\ Trouble
  /\ UNCHANGED <<agents, released, bad, admitted>>

SetMode(w, to) ==
  LET from == store.workers[w].mode
      undrain == from = "draining" /\ to = "ready"
      RECURSIVE Back(_, _)
      Back(s, l) == IF l = 0 THEN s
                    ELSE Back(IF s.lives[l].st = "open" /\ s.lives[l].sel = w THEN ClearMove(s, l, TRUE) ELSE s, l - 1)
      a == IF undrain THEN Back(store, NL) ELSE store
      t == [a EXCEPT !.workers[w].mode = to]
  IN
  /\ Has("modes") /\ Known(store, w) /\ ~Spared(w)
  /\ <<from, to>> \in {<<"ready", "cordoned">>, <<"cordoned", "ready">>, <<"ready", "draining">>,
                       <<"cordoned", "draining">>, <<"draining", "ready">>}
  /\ store' = IF Placeable(t, w) THEN EnterRoom(t, w) ELSE ClearMovesTo(t, w)
  /\ UNCHANGED <<agents, released, bad, trouble, admitted>>

\* A clean exit, or somebody in its name.
Exit(w) ==
  /\ Has("gone") /\ Known(store, w) /\ ~Spared(w)
  /\ store' = MakeGone(store, w)
  /\ Trouble
  /\ UNCHANGED <<agents, released, bad, admitted>>

\* Lost for long, with nothing on it that a live would miss.
Reap(w) ==
  /\ Has("gone") /\ Known(store, w) /\ store.workers[w].lost
  /\ \A l \in Lives, n \in Numbers : store.slots[w][l][n] \notin {"starting", "running", "vacant"}
  /\ store' = MakeGone(store, w)
  /\ UNCHANGED <<agents, released, bad, trouble, admitted>>

\* The next boot on a device: the one before it is gone in the same step. An OS lock keeps the two apart.
Register(w) ==
  LET before == w - ND
      a == IF Known(store, before) THEN MakeGone(store, before) ELSE store
  IN
  /\ Has("gone") /\ w > ND /\ store.workers[w].st = "none" /\ store.workers[before].st # "none"
  /\ Has("agents") => agents[before].proc = "dead"
  /\ store' = [a EXCEPT !.workers[w] = Worker("new")]
  /\ agents' = [agents EXCEPT ![w].proc = "on"]
  /\ UNCHANGED <<released, bad, trouble, admitted>>

\* `depart' arrives. Without agents any Worker may say it of anything, at any time.
Depart(w, l, n) ==
  LET tag == IF Broken("untagged-cleanup") /\ store.slots[w][l][n] = "none"
             THEN CHOOSE m \in Numbers : store.slots[w][l][m] # "none" ELSE n
      slot == store.slots[w][l][tag]
      a == Write(store, w, l, tag, IF slot \in {"starting", "running"} THEN "vacant" ELSE "none")
      t == CASE slot \in {"starting", "running"} -> [a EXCEPT !.lives[l] = Unclaim(a.lives[l])]
             [] slot = "reserved" -> ClearMove(a, l, FALSE)
             [] OTHER -> a
  IN
  /\ Has("agents") => agents[w].said[l][n]
  /\ store.slots[w][l][n] # "none" \/ (Broken("untagged-cleanup") /\ \E m \in Numbers : store.slots[w][l][m] # "none")
  /\ slot # "vacant"
  /\ store' = t
  /\ Flag("I3", n < store.lives[l].epoch /\ Ownership(store, l) # Ownership(t, l))
  /\ IF ~Has("agents") /\ slot # "departing" THEN Trouble ELSE UNCHANGED trouble
  /\ UNCHANGED <<agents, released, admitted>>

----------------------------------------------------------------------------
(* Agents: dhsched.ownership.agent, one decision at a time *)

Running(a) == {t \in Lives \X Numbers : a.runs[t[1]][t[2]] # "none"}
Wanted(a) == {t \in Lives \X Numbers :
                /\ a.runs[t[1]][t[2]] = "none"
                /\ ~a.fin[t[1]][t[2]] \/ Broken("agent-restarts-departed")
                /\ a.table[t[1]][t[2]] \in {"starting", "reserved"}}
\* Owned generations before reserved ones, then by name.
Before(a, t, u) ==
  LET late(x) == IF a.table[x[1]][x[2]] = "reserved" THEN 1 ELSE 0 IN
  \/ late(t) < late(u)
  \/ late(t) = late(u) /\ (t[1] < u[1] \/ (t[1] = u[1] /\ t[2] < u[2]))
Fits(a, t) ==
  \/ Cardinality(Running(a)) + Cardinality({u \in Wanted(a) : Before(a, u, t)}) < Cap
  \/ Broken("agent-over-capacity")

Stop(w, l, n) ==
  /\ agents[w].runs[l][n] \in {"prepared", "running"}
  /\ agents[w].table[l][n] \in {"none", "departing", "vacant"}
  /\ agents' = [agents EXCEPT ![w].runs[l][n] = "stopping"]
  /\ UNCHANGED trouble

\* What may be given back: never so much that fewer slots are left than runtimes, or the store would send lives to a
\* Worker that is full. What was finished goes first, then by name. A crash gives nothing back: the slot stays, vacant.
Spare(a) == Cardinality({t \in Lives \X Numbers : a.table[t[1]][t[2]] # "none"}) - Cardinality(Running(a))
Returnable(a) == {t \in Lives \X Numbers :
                    /\ a.runs[t[1]][t[2]] = "none"
                    /\ a.table[t[1]][t[2]] = "departing" \/ (a.table[t[1]][t[2]] = "reserved" /\ a.fin[t[1]][t[2]])}
Sooner(a, t, u) ==
  LET late(x) == IF a.fin[x[1]][x[2]] THEN 0 ELSE 1 IN
  \/ late(t) < late(u)
  \/ late(t) = late(u) /\ (t[1] < u[1] \/ (t[1] = u[1] /\ t[2] < u[2]))

SayDepart(w, l, n) ==
  LET a == agents[w]
      t == <<l, n>>
  IN
  /\ \/ a.runs[l][n] = "none" /\ a.table[l][n] = "starting" /\ a.fin[l][n]
     \/ /\ t \in Returnable(a)
        /\ Cardinality({u \in Returnable(a) : Sooner(a, u, t)}) < Spare(a) \/ Broken("agent-departs-all")
  /\ agents' = [agents EXCEPT ![w].fin[l][n] = TRUE, ![w].said[l][n] = TRUE, ![w].done[l][n] = Has("late")]
  /\ UNCHANGED trouble

Start(w, l, n) ==
  LET a == agents[w] IN
  /\ \/ a.runs[l][n] = "prepared" /\ ~a.fin[l][n] /\ a.table[l][n] = "starting"
     \/ <<l, n>> \in Wanted(a) /\ Fits(a, <<l, n>>)
  /\ agents' = [agents EXCEPT ![w].runs[l][n] = IF a.table[l][n] = "reserved" THEN "prepared" ELSE "running"]
  /\ UNCHANGED trouble

\* A runtime is gone: it was stopped, or it crashed.
Over(w, l, n) ==
  /\ agents[w].runs[l][n] # "none"
  /\ agents' = [agents EXCEPT ![w] = 
                 Tidy([@ EXCEPT !.runs[l][n] = "none", !.fin[l][n] = TRUE, !.done[l][n] = Has("late")])]
  /\ IF agents[w].runs[l][n] = "stopping" THEN UNCHANGED trouble ELSE Trouble

\* A table that was on its way arrives: an older one than the agent has is ignored.
TakeLate(w) ==
  LET A == agents[w] IN
  /\ A.proc = "on" /\ (A.fresh = "new" \/ (A.fresh = "old" /\ Broken("older-table-taken")))
  /\ agents' = [agents EXCEPT ![w] = Tidy([A EXCEPT !.table = A.late, !.late = Nothing("none"), !.fresh = "no"])]
  /\ UNCHANGED <<store, released, bad, trouble, admitted>>

Agent(w, l, n) ==
  /\ Has("agents") /\ agents[w].proc = "on"
  /\ Stop(w, l, n) \/ SayDepart(w, l, n) \/ Start(w, l, n) \/ Over(w, l, n)
  /\ UNCHANGED <<store, released, bad, admitted>>

\* The process ends, and its runtimes with it; what it said may still arrive.
Die(w) ==
  /\ Has("agents") /\ Has("gone") /\ agents[w].proc = "on"
  /\ agents' = [agents EXCEPT ![w] = [NoAgent EXCEPT !.proc = "dead", !.said = agents[w].said]]
  /\ UNCHANGED <<store, released, bad, trouble, admitted>>

----------------------------------------------------------------------------
\* The steps that give out numbers, and may not run on a server whose home was not entered (Homes.tla).
Issue ==
  \/ \E l \in Lives :
       \/ \E w \in Workers : Create(l, w) \/ Reserve(l, w)
       \/ \E w \in Workers, e \in Numbers :
            \/ \E cause \in {"reassign", "recover", "drain", "move"} : Place(l, w, e, cause)
            \/ Pull(l, w, e)
       \/ PlaceNowhere(l) \/ PlaceForNobody(l) \/ PlaceMoot(l)
  \/ \E w \in Workers : Register(w)

Pulls(l) == (1..MaxPull + 1) \cup {store.lives[l].pull}

\* Everything else but reports.
Rest ==
  \/ \E l \in Lives :
       \/ \E w \in Workers : ReadRoom(l, w)
       \/ \E w \in Workers, e \in Numbers :
            \/ \E p \in Pulls(l) : Release(l, w, e, p)
            \/ Depart(w, l, e)
            \/ Agent(w, l, e)
       \/ Hold(l) \/ Cancel(l) \/ End(l) \/ Outlive(l) \/ Sweep(l)
       \/ \E expired, ripe \in BOOLEAN : Look(l, expired, ripe)
  \/ \E w \in Workers :
       \/ TakeLate(w)
       \/ \E to \in {"ready", "cordoned", "draining"} : SetMode(w, to)
       \/ Expire(w) \/ Exit(w) \/ Reap(w) \/ Die(w)
  \/ NewTerm

Next ==
  \/ Issue \/ Rest
  \/ \E w \in Workers, reply \in {"lost", "taken", "late"}, busy \in BOOLEAN : Report(w, reply, busy)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* What must always hold: docs/internals/protocol.md *)

Alive(s, l) == s.lives[l].st = "open"

NumbersGrow == \A l \in Lives :
  LET L == store.lives[l]
      M == store'.lives[l]
  IN CASE L.st # "none" /\ M.st # "none" -> /\ L.epoch <= M.epoch /\ L.issued <= M.issued /\ M.epoch <= M.issued
                                            /\ M.epoch # L.epoch => M.epoch > store.floor
       [] L.st # "none" /\ M.st = "none" -> store'.base >= L.issued
       [] L.st = "none" /\ M.st # "none" -> M.epoch > store.base
       [] OTHER -> TRUE
I0 == [][NumbersGrow]_vars

OneWorkerEach == \A l \in Lives :
  LET L == store.lives[l]
      M == store'.lives[l]
  IN L.st # "none" /\ M.st # "none" /\ L.epoch = M.epoch => L.sel = M.sel
I1 == [][OneWorkerEach]_vars

Granted(l) ==
  IF store.lives[l].active = 0 THEN {}
  ELSE {g \in Workers \X Numbers \X (Pulls(l) \cup {0}) : MayRelease(store, l, g[1], g[2], g[3])}
I2 == /\ \A l \in Lives : Cardinality(Granted(l)) <= 1 /\ store.lives[l].active \in {0, store.lives[l].sel}
      /\ bad # "I2"

\* Ownership changes by a commit, which clears active; by the claim of the current generation; by its end.
OldWorkIsVoid == bad' # "I3" /\ \A l \in Lives :
  LET L == store.lives[l]
      M == store'.lives[l]
  IN Alive(store, l) /\ M.st # "none" /\ Ownership(store, l) # Ownership(store', l) =>
       \/ M.epoch > L.epoch /\ M.active = 0
       \/ M.epoch = L.epoch /\ M.sel = L.sel /\ (M.active = 0 \/ (L.active = 0 /\ M.active = L.sel))
I3 == [][OldWorkIsVoid]_vars

I4 == \A w \in Workers : Load(store, w) <= Cap /\ Cardinality(Running(agents[w])) <= Cap

I5 == /\ \A l \in Lives : Alive(store, l) =>
           /\ Current(store, l) \in {"starting", "running", "vacant"}
           /\ (Current(store, l) = "running") = (store.lives[l].active # 0)
      /\ \A w \in Workers, l \in Lives, n \in Numbers :
           store.slots[w][l][n] \in {"starting", "running", "vacant"} =>
             Alive(store, l) /\ store.lives[l].sel = w /\ store.lives[l].epoch = n

\* After a new term the lives below the floor are found by walking them (reconcile), not by the agenda.
I7 == \A l \in Lives :
  LET L == store.lives[l] IN
  \/ L.st = "none" \/ L.due
  \/ L.st = "open" /\ L.epoch <= store.floor
  \/ L.st = "open" /\ ~Needs(store, l) /\ L.active # 0 /\ L.target = 0 /\ ~Lifetimes

\* One reservation per live, no reserved slot without its move, and no hold without one.
Moves ==
  /\ \A l \in Lives : store.lives[l].hold => store.lives[l].target # 0
  /\ \A w \in Workers, l \in Lives, n \in Numbers :
       (store.slots[w][l][n] = "reserved") = (store.lives[l].target = w /\ store.lives[l].number = n)

\* A generation that departed never runs again in its boot.
Final == \A w \in Workers, l \in Lives, n \in Numbers :
  agents[w].runs[l][n] # "none" => ~agents[w].fin[l][n] /\ ~agents[w].done[l][n]

\* A Worker that is not gone has a slot for every runtime: what the store counts is what the GPU holds. With more than
\* one slot that is not so: there an agent starts the next generation beside the last one, which is still stopping.
Slots == Cap = 1 => \A w \in Workers : Known(store, w) => Cardinality(Running(agents[w])) <= Load(store, w)

\* Nothing at or below the floor is granted anything.
Floor == \A l \in Lives : \A g \in Granted(l) : g[2] > store.floor

\* A recovery moves only a live that needs it.
Need == bad # "Need"

----------------------------------------------------------------------------
(* What must happen at last, as long as one Worker stays free: groups "spared" and "timely". *)

Claim(l) == LET L == store.lives[l] IN
  /\ L.st = "open" /\ L.active = 0 /\ ~store.workers[L.sel].lost
  /\ Has("agents") => agents[L.sel].runs[l][L.epoch] = "running"
  /\ Pull(l, L.sel, L.epoch)

\* Only lives on the agenda are looked at, unless a new term put them below the floor.
Recover(l) ==
  /\ store.lives[l].due \/ store.lives[l].epoch <= store.floor
  /\ Needs(store, l)
  /\ \E w \in Workers : Place(l, w, store.lives[l].epoch, "recover")

\* A Worker that is not lost does its part; one that is lost may never come back.
Healthy(w) == ~store.workers[w].lost

Fair ==
  /\ \A l \in Lives : WF_vars(Recover(l)) /\ WF_vars(Claim(l)) /\ WF_vars(Look(l, TRUE, FALSE))
  /\ \A w \in Workers : Has("agents") => WF_vars(Healthy(w) /\ Report(w, "taken", FALSE))
  /\ WF_vars(\E w \in Workers, l \in Lives, n \in Numbers :
       Healthy(w) /\ (Has("agents") \/ store.slots[w][l][n] = "departing") /\ Depart(w, l, n))
  /\ WF_vars(\E w \in Workers, l \in Lives, n \in Numbers : Healthy(w) /\ Agent(w, l, n) /\ trouble' = trouble)

FairSpec == Spec /\ Fair

Unowned(l) == Alive(store, l) /\ store.lives[l].active = 0
L1 == \A l \in Lives : Unowned(l) ~> ~Unowned(l)
L2 == \A l \in Lives, n \in Numbers :
  /\ (store.lives[l].number = n) ~> (store.lives[l].number # n)
  /\ \A w \in Workers : (store.slots[w][l][n] = "departing") ~> (store.slots[w][l][n] = "none" \/ ~Healthy(w))
L3 == \A l \in Lives : Needs(store, l) ~> ~Needs(store, l)
=============================================================================
