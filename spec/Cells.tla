-------------------------------- MODULE Cells --------------------------------
(***************************************************************************)
(* Many cells: one bucket of live ids that moves from cell to cell, and    *)
(* one live id in it.  Each cell is a store of its own and may forget; no  *)
(* step spans two cells.  Which cell takes creates of the bucket is what   *)
(* the cells themselves have written down: move m brought the bucket to    *)
(* Cell(m), which is `mine' by m, and every cell that it left is `away' by *)
(* a later move.  The map is a hint with a version, of which every cell    *)
(* has a copy: version 2m - 1 says that the bucket is at Cell(m), version  *)
(* 2m announces that Cell(m + 1) is next.                                  *)
(*                                                                         *)
(* A move is carried on by movers: replicas that read the cells, decide    *)
(* (Plan) and act later, when what they read may be no longer true.  A     *)
(* mover that dies has only lost its decision, so a crash at any step, and *)
(* its continuation by any replica, are another decision.                  *)
(*                                                                         *)
(* Dispatch replicas create the live, over and over: one call to one cell  *)
(* at a time, by the map that each knows, which may be old.  All calls of  *)
(* one create that write name the home of their cell as of the first call. *)
(*                                                                         *)
(* A cell that forgets is entered at once, since nothing runs in a home    *)
(* that is not entered (Homes.tla): its numbers jump to a block that no    *)
(* home of any cell has had.  What a live's generations are is DHSched.tla *)
(* and Homes.tla; here a live has one number.  spec/cells.py reaches the   *)
(* same states with the functions of dhsched.cells.                        *)
(***************************************************************************)
EXTENDS Integers, Sequences

CONSTANTS
  NC, ND, NM,   \* cells, Dispatch replicas, movers
  MaxMove,      \* the last move; the first has brought the bucket to cell 1
  Forgets,      \* how often a cell forgets
  Forgetful,    \* the cells that may
  MaxHome,      \* blocks that homes may have, with block 0
  Step,         \* numbers in a block
  On,           \* groups: ends, keeps (a loss goes back to any earlier state, not only to the first), alone (a replica may
                \* know the map of one cell only), fixed (homes begin where they do in the counterexample of record 22)
  Mutant        \* "" or the name of a rule that is broken on purpose (spec/mutants.py)

Cells == 1..NC
Replicas == 1..ND
Movers == 1..NM
Blocks == 0..MaxHome
Numbers == 1..(MaxHome + 1) * Step

VARIABLES
  cells,     \* per cell: what it says of the bucket and the map that it has; its record of the live, and the highest
             \* number that is not to be given out
  homes,     \* per cell: the block of its home
  used,      \* per block, counted from 1: a home has it
  losses,    \* how often a cell has forgotten
  behind,    \* what a loss goes back to: a cell and its state
  revived,   \* per cell: its live is open because the cell forgot its end
  disp,      \* per replica: its map, 0 when that is too old to create; how far its create has come, by which move, and
             \* the home that it names
  todo,      \* per mover: the step that it has decided on, of which move; the cell to close, or the home that it names
  given,     \* per number: a live has had it
  bad        \* the name of the first trace property that was broken, or ""

stores == <<cells, homes, used, losses, behind, revived>>
vars == <<stores, disp, todo, given, bad>>

Has(group) == group \in On
Broken(mutant) == Mutant = mutant
Max(a, b) == IF a > b THEN a ELSE b

Cell(m) == ((m - 1) % NC) + 1
MoveOf(v) == (v + 1) \div 2     \* The move by which the bucket is where version v says.
Announced(v) == v % 2 = 0
Announces(m) == 2 * (m - 1)     \* The version that announces move m, and the one that says that it is made.
Publishes(m) == 2 * m - 1

First(c) == CASE Has("fixed") -> IF c = 1 THEN MaxHome ELSE c - 2
              [] OTHER -> c - 1
Fresh(c) == [own |-> IF c = 1 THEN "mine" ELSE "none", by |-> IF c = 1 THEN 1 ELSE 0, asks |-> FALSE, map |-> 1,
             st |-> "none", num |-> 0, base |-> First(c) * Step]
Idle == <<"idle", 0, 0>>
Nothing == <<"no", 0, 0>>

Init ==
  /\ cells = [c \in Cells |-> Fresh(c)]
  /\ homes = [c \in Cells |-> First(c)]
  /\ used = [b \in 1..MaxHome + 1 |-> \E c \in Cells : First(c) = b - 1]
  /\ losses = 0 /\ behind = <<0, Fresh(1)>>
  /\ revived = [c \in Cells |-> FALSE]
  /\ disp = [d \in Replicas |-> <<1, Idle>>]
  /\ todo = [r \in Movers |-> Nothing]
  /\ given = [n \in Numbers |-> FALSE]
  /\ bad = ""

----------------------------------------------------------------------------
(* What a cell answers *)

\* To a create that names move m; `vouched' says that the cell before has been asked, and does not have the live.
Answer(c, m, vouched) ==
  LET C == cells[c] IN
  CASE C.own = "mine" /\ C.by = m ->
         IF C.asks /\ ~vouched /\ C.st = "none" /\ ~Broken("new-cell-asks-nobody") THEN "ask" ELSE "take"
    [] Broken("move-not-compared") /\ C.own # "none" /\ C.by = m + 1 -> "take"
    [] C.by > m -> IF C.own = "away" THEN "away" ELSE "older"
    [] OTHER -> "not yet"

\* To the question of Cell(m), whether this cell, which had the bucket before, has the live.
Asked(c, m) ==
  LET C == cells[c] IN
  CASE C.st # "none" -> "has"
    [] (C.own = "away" /\ C.by >= m) \/ Broken("open-cell-says-absent") -> "absent"
    [] OTHER -> "not closed"

----------------------------------------------------------------------------
(* Replicas of Dispatch *)

\* Cell c has said that the live is there, or was; whoever asked is told so. No other cell may have it.
Tells(c) == IF \E x \in Cells \ {c} : cells[x].st = "open" /\ ~revived[x] THEN "Same" ELSE ""

Number(c) ==
  LET other == IF cells[c].asks THEN cells[Cell(cells[c].by - 1)].base ELSE 0
  IN (IF Broken("created-above-the-other") THEN Max(cells[c].base, other) ELSE cells[c].base) + 1

\* The step `place' of cell c, for a create.
Takes(d, c) ==
  LET n == Number(c) IN
  IF cells[c].st # "none"
  THEN /\ bad' = IF bad = "" THEN Tells(c) ELSE bad
       /\ disp' = [disp EXCEPT ![d][2] = Idle]
       /\ UNCHANGED <<stores, todo, given>>
  ELSE /\ cells[c].base < (homes[c] + 1) * Step
       /\ cells' = [cells EXCEPT ![c].st = "open", ![c].num = n]
       /\ given' = [given EXCEPT ![n] = TRUE]
       /\ bad' = IF bad = "" THEN (IF given[n] THEN "Twice" ELSE Tells(c)) ELSE bad
       /\ disp' = [disp EXCEPT ![d][2] = Idle]
       /\ UNCHANGED <<homes, used, losses, behind, revived, todo>>

Goes(d, phase) == disp' = [disp EXCEPT ![d][2] = phase] /\ UNCHANGED <<stores, todo, given, bad>>

\* The first call of a create goes to the cell that the map announces, else to the one that has the bucket.
Begin(d) ==
  LET v == disp[d][1]
      m == IF Announced(v) THEN MoveOf(v) + 1 ELSE MoveOf(v)
      answer == Answer(Cell(m), m, FALSE)
  IN
  /\ disp[d][2] = Idle /\ v # 0
  /\ CASE answer = "take" -> Takes(d, Cell(m))
       [] answer = "ask" -> Goes(d, <<"ask", m, homes[Cell(m)]>>)
       [] answer = "not yet" /\ Announced(v) -> Goes(d, <<"old", m - 1, homes[Cell(m - 1)]>>)
       [] OTHER -> FALSE    \* Nothing has changed: it begins anew.

InHome(d) == disp[d][2][3] = homes[Cell(disp[d][2][2])] \/ Broken("pass-outlives-a-home")

\* The announced cell is not open: so the one that has the bucket creates.
Old(d) ==
  LET m == disp[d][2][2]
      answer == Answer(Cell(m), m, FALSE)
  IN
  /\ disp[d][2][1] = "old"
  /\ CASE InHome(d) /\ answer = "take" -> Takes(d, Cell(m))
       [] InHome(d) /\ answer = "ask" -> Goes(d, <<"ask", m, disp[d][2][3]>>)
       [] OTHER -> Goes(d, Idle)

Ask(d) ==
  LET m == disp[d][2][2]
      old == Cell(m - 1)
      answer == Asked(old, m)
  IN
  /\ disp[d][2][1] = "ask"
  /\ CASE answer = "has" -> /\ bad' = IF bad = "" THEN Tells(old) ELSE bad
                            /\ disp' = [disp EXCEPT ![d][2] = Idle]
                            /\ UNCHANGED <<stores, todo, given>>
       [] answer = "absent" -> Goes(d, <<"new", m, disp[d][2][3]>>)
       [] OTHER -> Goes(d, Idle)

New(d) ==
  LET m == disp[d][2][2] IN
  /\ disp[d][2][1] = "new"
  /\ IF InHome(d) /\ Answer(Cell(m), m, TRUE) = "take" THEN Takes(d, Cell(m)) ELSE Goes(d, Idle)

GiveUp(d) == disp[d][2] # Idle /\ Goes(d, Idle)

Highest == LET v == {cells[c].map : c \in Cells} IN CHOOSE x \in v : \A y \in v : y <= x

\* A replica reads the maps; one that has just started knows nothing but these.
Look(d, v) ==
  /\ disp[d][2] = Idle
  /\ v = Highest \/ (Has("alone") /\ \E c \in Cells : cells[c].map = v)
  /\ disp' = [disp EXCEPT ![d][1] = v] /\ UNCHANGED <<stores, todo, given, bad>>

\* A replica that has read no map for long creates nothing.
Expire(d) ==
  /\ disp[d][2] = Idle /\ disp[d][1] # 0
  /\ disp' = [disp EXCEPT ![d][1] = 0] /\ UNCHANGED <<stores, todo, given, bad>>

----------------------------------------------------------------------------
(* A move, step by step *)

\* Long enough after it was announced: nobody creates by an older map.
Waited(m) == Broken("no-wait") \/ \A d \in Replicas : disp[d][1] = 0 \/ disp[d][1] >= Announces(m)
Everywhere(m) == cells[Cell(m - 1)].map = Highest /\ cells[Cell(m)].map = Highest

\* A cell that still asks the one before it cannot be closed, unless the bucket goes back there.
Blocked(C, m) ==
  C.own = "mine" /\ C.asks /\ Cell(C.by - 1) # Cell(m) /\ ~Broken("close-while-asking")

\* The cell that C asks has been closed, and nothing is left there.
Settling(c) ==
  LET C == cells[c]
      old == cells[Cell(C.by - 1)]
  IN IF C.own = "mine" /\ C.asks /\ old.own = "away" /\ old.by >= C.by
        /\ (old.st = "none" \/ Broken("settles-before-empty"))
     THEN <<"settle", C.by, homes[c]>> ELSE Nothing

\* The cell that has the bucket by the highest move, 0 for none; and those that have forgotten that it has left them:
\* they say that it is theirs, or are asked and are not closed.
Owner ==
  LET mine == {c \in Cells : cells[c].own = "mine"} IN
  IF mine = {} THEN 0 ELSE CHOOSE c \in mine : \A x \in mine : cells[x].by <= cells[c].by
Late ==
  IF Owner = 0 THEN {}
  ELSE LET O == cells[Owner] IN
       {c \in Cells :
          /\ cells[c].by < O.by
          /\ cells[c].own = "mine" \/ (O.asks /\ c = Cell(O.by - 1))
          /\ c = Cell(O.by - 1) \/ ~Broken("closes-one-cell-only")}
Least(S) == CHOOSE c \in S : \A x \in S : c <= x

ToClose(c, m) == IF Blocked(cells[c], m) THEN Settling(c) ELSE <<"close", m, c>>
CloseLate ==
  LET m == cells[Owner].by
      free == {c \in Late : ~Blocked(cells[c], m)}
  IN ToClose(Least(IF free # {} THEN free ELSE Late), m)

\* What is to be done next, of the last move that the map speaks of; `more': the operator wants the next.
Plan(more) ==
  LET v == Highest
      m == IF Announced(v) THEN MoveOf(v) + 1 ELSE MoveOf(v)
      s == Cell(m - 1)
      t == Cell(m)
      x == Cell(m - 2)
      S == cells[s]
      T == cells[t]
  IN
  CASE Late # {} -> CloseLate
    [] m = 1 -> IF more /\ MaxMove > 1 THEN <<"announce", 2, 0>> ELSE Nothing
    [] T.by >= m /\ Announced(v) -> <<"publish", m, 0>>
    [] T.by >= m /\ more /\ m < MaxMove -> <<"announce", m + 1, 0>>
    [] T.by >= m -> Settling(t)
    [] S.by >= m -> <<"open", m, 0>>
    \* The cell that the bucket is to leave has forgotten that it has it: first it gets it back.
    [] Announced(v) /\ S.by < m - 1 /\ ~Broken("leaves-a-lost-cell") ->
         IF cells[x].by >= m - 1 THEN <<"open", m - 1, 0>> ELSE ToClose(x, m - 1)
    [] ~Everywhere(m) \/ ~Waited(m) -> Nothing
    [] OTHER -> ToClose(s, m)

Decide(r, more) ==
  /\ todo[r] = Nothing /\ Plan(more) # Nothing
  /\ todo' = [todo EXCEPT ![r] = Plan(more)] /\ UNCHANGED <<stores, disp, given, bad>>

\* Each step is compared in its cell, once more, with what the cell has now.
Act(r) ==
  LET what == todo[r][1]
      m == todo[r][2]
      c == IF what = "close" THEN todo[r][3] ELSE IF what \in {"open", "settle"} THEN Cell(m) ELSE 1
      C == cells[c]
      after ==
        CASE what = "announce" -> [C EXCEPT !.map = Max(@, Announces(m))]
          [] what = "publish" -> [C EXCEPT !.map = Max(@, Publishes(m))]
          [] what = "close" ->
               IF C.by < m /\ ~Blocked(C, m) THEN [C EXCEPT !.own = "away", !.by = m, !.asks = FALSE] ELSE C
          [] what = "open" ->
               IF C.by < m \/ (Broken("opens-below") /\ C.by = m + 1)
               THEN [C EXCEPT !.own = "mine", !.by = m, !.asks = TRUE,
                              !.map = IF Broken("opens-without-the-map") THEN @ ELSE Max(@, Announces(m))] ELSE C
          [] what = "settle" ->
               IF C.own = "mine" /\ C.by = m /\ (homes[c] = todo[r][3] \/ Broken("settle-outlives-a-home"))
               THEN [C EXCEPT !.asks = FALSE] ELSE C
          [] OTHER -> C
  IN
  /\ todo[r] # Nothing
  /\ cells' = [cells EXCEPT ![c] = after]
  /\ todo' = [todo EXCEPT ![r] = Nothing]
  /\ UNCHANGED <<homes, used, losses, behind, revived, disp, given, bad>>

\* Anybody who reads the maps copies the highest to every cell.
Copy(c) ==
  /\ cells[c].map < Highest
  /\ cells' = [cells EXCEPT ![c].map = Highest]
  /\ UNCHANGED <<homes, used, losses, behind, revived, disp, todo, given, bad>>

----------------------------------------------------------------------------
(* Ends, and losses *)

Change(c, C, is_revived) ==
  /\ cells' = [cells EXCEPT ![c] = C] /\ revived' = [revived EXCEPT ![c] = is_revived]
  /\ UNCHANGED <<homes, used, losses, behind, disp, todo, given, bad>>

End(c) == Has("ends") /\ cells[c].st = "open" /\ Change(c, [cells[c] EXCEPT !.st = "ended"], FALSE)
Sweep(c) ==
  /\ cells[c].st = "ended"
  /\ Change(c, [cells[c] EXCEPT !.st = "none", !.num = 0, !.base = Max(@, cells[c].num)], FALSE)

\* Another cell has the bucket by a later move, and has the live too, or asks this cell no more: nobody looks here.
IsStray(c) ==
  /\ cells[c].st = "open"
  /\ \E x \in Cells \ {c} :
       /\ cells[x].own = "mine" /\ cells[x].by >= cells[c].by
       /\ cells[x].st = "open" \/ ~cells[x].asks \/ Cell(cells[x].by - 1) # c
EndStray(c) == ~Broken("strays-stay") /\ IsStray(c) /\ Change(c, [cells[c] EXCEPT !.st = "ended"], FALSE)

Keep(c) ==
  /\ Has("keeps") /\ c \in Forgetful /\ losses < Forgets /\ behind[1] = 0 /\ cells[c] # Fresh(c)
  /\ behind' = <<c, cells[c]>>
  /\ UNCHANGED <<cells, homes, used, losses, revived, disp, todo, given, bad>>

Forget(c, b) ==
  LET past == IF behind[1] = c THEN behind[2] ELSE Fresh(c) IN
  /\ c \in Forgetful /\ losses < Forgets /\ [past EXCEPT !.base = 0] # [cells[c] EXCEPT !.base = 0]
  /\ ~used[b + 1] /\ b > homes[c]
  /\ cells' = [cells EXCEPT ![c] = [past EXCEPT !.base = b * Step]]
  /\ homes' = [homes EXCEPT ![c] = b] /\ used' = [used EXCEPT ![b + 1] = TRUE]
  /\ losses' = losses + 1
  /\ behind' = IF behind[1] = c THEN <<0, Fresh(1)>> ELSE behind
  /\ revived' = [revived EXCEPT ![c] =
       past.st = "open" /\ (@ \/ cells[c].st # "open" \/ cells[c].num # past.num)]
  /\ UNCHANGED <<disp, todo, given, bad>>

Next ==
  \/ \E d \in Replicas : Begin(d) \/ Old(d) \/ Ask(d) \/ New(d) \/ GiveUp(d) \/ Expire(d)
  \/ \E d \in Replicas, v \in 1..Publishes(MaxMove) : Look(d, v)
  \/ \E r \in Movers : Act(r) \/ \E more \in BOOLEAN : Decide(r, more)
  \/ \E c \in Cells : Copy(c) \/ End(c) \/ Sweep(c) \/ EndStray(c) \/ Keep(c) \/ \E b \in Blocks : Forget(c, b)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
\* No number of the live is given out twice, by whatever cell and home.
Twice == bad # "Twice"

\* Nobody is told of the live by one cell while another has it; but for one whose end was forgotten, which is ended anew.
Same == bad # "Same"
NotTwo == \A c, x \in Cells :
  c # x /\ cells[c].st = "open" /\ cells[x].st = "open" => revived[c] \/ revived[x]

\* Without a loss the bucket is taken by one cell at most, and no live is ended by anybody but its client.
OneOwner == losses = 0 => \A c, x \in Cells : cells[c].own = "mine" /\ cells[x].own = "mine" => c = x
Quiet == losses = 0 => \A c \in Cells : ~IsStray(c)

\* A cell that has the bucket has a map that speaks of it: whoever reads all cells knows.
Named == \A c \in Cells : cells[c].own = "mine" => cells[c].map >= Announces(cells[c].by)

----------------------------------------------------------------------------
(* What must happen at last, once nothing more is forgotten *)

Fair ==
  /\ WF_vars(Decide(1, TRUE)) /\ WF_vars(Act(1))
  /\ \A c \in Cells : WF_vars(Copy(c)) /\ WF_vars(EndStray(c))
  /\ \A d \in Replicas : WF_vars(GiveUp(d)) /\ SF_vars(Look(d, Highest))

FairCells == Spec /\ Fair

\* A live is not in two cells for ever.
Apart == \A c, x \in Cells :
  LET two == c # x /\ cells[c].st = "open" /\ cells[x].st = "open" IN two ~> ~two

\* The bucket is mine in exactly one cell: the one that it was moved to.
Owned == <>[](\A c \in Cells : cells[c].own = "mine" <=> c = Cell(MaxMove))
=============================================================================
