----------------------------- MODULE CellWorkers -----------------------------
(***************************************************************************)
(* Many cells: one machine, whose Worker is registered in one cell at a    *)
(* time, and cells that may forget.  Each cell has one live, and gives its *)
(* generations to whatever Worker is registered there, or to machines that *)
(* are not here.  A registration is a cell and a boot.                     *)
(*                                                                         *)
(* A process begins when nothing of the one before runs any more (the      *)
(* device lock).  Told that its registration is gone, it stops what it     *)
(* runs, and registers anew, in whatever cell.  Answers may arrive late.   *)
(* Order of the tables of one registration is DHSched.tla, homes are       *)
(* Homes.tla.  spec/cell_workers.py reaches the same states with the rules *)
(* of the agent and of dhsched.cells.                                      *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
  NC,        \* cells
  Cap,       \* runtimes that the machine may have
  MaxBoot,   \* registrations
  MaxN,      \* generations of each live, over all homes of its cell
  Forgets,   \* how often a cell forgets
  On,        \* groups: losses (a cell may forget)
  Mutant     \* "" or the name of a rule that is broken on purpose (spec/mutants.py)

Cells == 1..NC
Boots == 1..MaxBoot
Numbers == 1..MaxN

VARIABLES
  store,    \* per cell: the boot that is registered, 0 for none; the state of the slot there and its number
  issued,   \* per cell: the last number that was given out, in whatever home
  owner,    \* per cell and number: the boot that it was given to
  losses,   \* how often a cell has forgotten
  behind,   \* what a loss goes back to: a cell, and its state
  proc,     \* the process runs
  boots,    \* the last boot
  reg,      \* the registration of the process: cell and boot, or <<0, 0>>
  table,    \* per cell: the slot that the agent knows of, and its number
  runs,     \* per cell: the runtime's phase and its number
  fin,      \* per cell and number: over in this registration
  late,     \* a slot table on its way: cell, boot, slot, number
  bad       \* "Given" once a generation was started by a boot that it was not given to

agents == <<proc, boots, reg, table, runs, fin, late>>
vars == <<store, issued, owner, losses, behind, agents, bad>>

Has(group) == group \in On
Broken(mutant) == Mutant = mutant
NoSlot == <<"none", 0>>
Empty == <<0, "none", 0>>
NoReg == <<0, 0>>
NoTable == [c \in Cells |-> NoSlot]
NoFin == [c \in Cells |-> [n \in Numbers |-> FALSE]]
NoLate == <<0, 0, "none", 0>>

Init ==
  /\ store = [c \in Cells |-> Empty] /\ issued = [c \in Cells |-> 0]
  /\ owner = [c \in Cells |-> [n \in Numbers |-> 0]]
  /\ losses = 0 /\ behind = <<0, Empty>>
  /\ proc = FALSE /\ boots = 0 /\ reg = NoReg
  /\ table = NoTable /\ runs = NoTable /\ fin = NoFin /\ late = NoLate
  /\ bad = ""

----------------------------------------------------------------------------
(* Cells *)

Place(c) ==
  /\ store[c][1] # 0 /\ store[c][2] = "none" /\ issued[c] < MaxN
  /\ issued' = [issued EXCEPT ![c] = @ + 1]
  /\ store' = [store EXCEPT ![c] = <<@[1], "starting", issued[c] + 1>>]
  /\ owner' = [owner EXCEPT ![c][issued[c] + 1] = store[c][1]]
  /\ UNCHANGED <<losses, behind, agents, bad>>

\* The live is placed on another machine.
Leave(c) ==
  /\ store[c][2] = "starting"
  /\ store' = [store EXCEPT ![c][2] = "departing"]
  /\ UNCHANGED <<issued, owner, losses, behind, agents, bad>>

\* The Worker was silent for long, or was reaped; its live is elsewhere.
Gone(c) ==
  /\ store[c][1] # 0
  /\ store' = [store EXCEPT ![c] = Empty]
  /\ UNCHANGED <<issued, owner, losses, behind, agents, bad>>

Keep(c) ==
  /\ Has("losses") /\ losses < Forgets /\ behind[1] = 0 /\ store[c] # Empty
  /\ behind' = <<c, store[c]>>
  /\ UNCHANGED <<store, issued, owner, losses, agents, bad>>

\* Numbers jump, so what is given out after a loss was never given out before.
Forget(c) ==
  /\ losses < Forgets /\ behind[1] = c /\ store[c] # behind[2]
  /\ store' = [store EXCEPT ![c] = behind[2]] /\ behind' = <<0, Empty>> /\ losses' = losses + 1
  /\ UNCHANGED <<issued, owner, agents, bad>>

----------------------------------------------------------------------------
(* The process *)

Begin ==
  /\ ~proc /\ boots < MaxBoot
  /\ proc' = TRUE
  /\ UNCHANGED <<store, issued, owner, losses, behind, boots, reg, table, runs, fin, late, bad>>

\* The process ends, and its runtimes with it, before anybody else has the device lock.
Exit ==
  /\ proc
  /\ proc' = FALSE /\ reg' = NoReg /\ table' = NoTable /\ runs' = NoTable /\ fin' = NoFin /\ late' = NoLate
  /\ UNCHANGED <<store, issued, owner, losses, behind, boots, bad>>

Busy(c) == runs[c][1] # "none"

\* Registers in whatever cell. A record that it has there is replaced; one in another cell stays.
Register(c) ==
  /\ proc /\ reg = NoReg /\ boots < MaxBoot
  /\ \A x \in Cells : ~Busy(x) \/ (Broken("registers-while-stopping") /\ runs[x][1] = "stopping")
  /\ boots' = boots + 1 /\ reg' = <<c, boots + 1>>
  /\ store' = [store EXCEPT ![c] = <<boots + 1, "none", 0>>]
  /\ table' = NoTable /\ fin' = NoFin
  /\ UNCHANGED <<issued, owner, losses, behind, proc, runs, late, bad>>

Only(c, slot) == [x \in Cells |-> IF x = c THEN slot ELSE NoSlot]

\* What is over is forgotten with its slot.
Tidy(t) == [c \in Cells |-> [n \in Numbers |-> fin[c][n] /\ (t[c][2] = n \/ runs[c][2] = n)]]

Report(arrives) ==
  LET c == reg[1]
      slot == <<store[c][2], store[c][3]>>
      t == Only(c, slot)
  IN
  /\ proc /\ reg # NoReg
  /\ IF store[c][1] # reg[2]
     THEN /\ arrives    \* GONE
          /\ reg' = NoReg /\ table' = NoTable /\ fin' = Tidy(NoTable) /\ UNCHANGED late
     ELSE /\ UNCHANGED reg
          /\ IF arrives
             THEN table' = t /\ fin' = Tidy(t) /\ UNCHANGED late
             ELSE /\ late = NoLate /\ slot # NoSlot
                  /\ late' = <<c, reg[2], slot[1], slot[2]>> /\ UNCHANGED <<table, fin>>
  /\ UNCHANGED <<store, issued, owner, losses, behind, proc, boots, runs, bad>>

\* A late table is dropped: of its own registration there is a newer one, or will be with the next report.
Arrive ==
  LET c == late[1]
      t == Only(c, <<late[3], late[4]>>)
      taken == Broken("takes-any-table") /\ reg # NoReg
  IN
  /\ late # NoLate
  /\ late' = NoLate
  /\ table' = IF taken THEN t ELSE table
  /\ fin' = IF taken THEN Tidy(t) ELSE fin
  /\ UNCHANGED <<store, issued, owner, losses, behind, proc, boots, reg, runs, bad>>

\* The agent of this registration: what it knows of is what it has begun itself.
Book == {c \in Cells : Busy(c) /\ c = reg[1]}

Start(c) ==
  LET n == table[c][2] IN
  /\ table[c][1] = "starting" /\ ~Busy(c) /\ ~fin[c][n]
  /\ Cardinality(Book) < Cap
  /\ runs' = [runs EXCEPT ![c] = <<"running", n>>]
  /\ bad' = IF bad = "" /\ owner[c][n] # reg[2] THEN "Given" ELSE bad
  /\ UNCHANGED <<store, issued, owner, losses, behind, proc, boots, reg, table, fin, late>>

Stop(c) ==
  /\ runs[c][1] = "running" /\ (table[c][2] # runs[c][2] \/ table[c][1] # "starting")
  /\ runs' = [runs EXCEPT ![c][1] = "stopping"]
  /\ UNCHANGED <<store, issued, owner, losses, behind, proc, boots, reg, table, fin, late, bad>>

\* Stopped, or crashed.
Over(c) ==
  /\ Busy(c)
  /\ runs' = [runs EXCEPT ![c] = NoSlot]
  /\ fin' = [fin EXCEPT ![c][runs[c][2]] = TRUE]
  /\ UNCHANGED <<store, issued, owner, losses, behind, proc, boots, reg, table, late, bad>>

\* The slot is given back: the cell of the registration takes it only from its own Worker, and by its number.
Depart(c) ==
  LET n == table[c][2] IN
  /\ proc /\ reg[1] = c /\ n # 0 /\ ~Busy(c)
  /\ table[c][1] = "departing" \/ fin[c][n]
  /\ fin' = [fin EXCEPT ![c][n] = TRUE]
  /\ store' = IF store[c][1] = reg[2] /\ store[c][3] = n THEN [store EXCEPT ![c] = <<@[1], "none", 0>>] ELSE store
  /\ UNCHANGED <<issued, owner, losses, behind, proc, boots, reg, table, runs, late, bad>>

Next ==
  \/ Begin \/ Exit \/ Arrive \/ \E yes \in BOOLEAN : Report(yes)
  \/ \E c \in Cells :
       \/ Place(c) \/ Leave(c) \/ Gone(c) \/ Keep(c) \/ Forget(c)
       \/ Register(c) \/ Start(c) \/ Stop(c) \/ Over(c) \/ Depart(c)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
\* The machine never has more runtimes than it may, over all cells, stopping ones included.
I4 == Cardinality({c \in Cells : Busy(c)}) <= Cap

\* What runs belongs to the cell of the registration, but for what is still to stop after it.
Own == \A c \in Cells : runs[c][1] = "running" /\ reg # NoReg => reg[1] = c

\* A generation is started only by the boot that it was given to.
Given == bad # "Given"

\* Nothing runs in a process that is not there.
Ended == ~proc => \A c \in Cells : ~Busy(c)
=============================================================================
