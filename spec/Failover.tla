------------------------------ MODULE Failover ------------------------------
(***************************************************************************)
(* The store as several servers: a primary, replicas that are a prefix of  *)
(* it, promotion of any of them, two primaries at once, restarts that lose *)
(* a tail.  What a server holds is the log of the scripts that wrote to    *)
(* it.  A home is one uninterrupted time of one primary: INFO gives it a   *)
(* name that no other time has (master_replid).                            *)
(*                                                                         *)
(* A script that issues a number stands for all that is told to a caller:  *)
(* a commit, a reservation, a registration, a pull.  It is repeated under  *)
(* the same id, by anybody, until somebody is told; a repetition issues    *)
(* nothing, and is counted.  A client is a service with one connection,    *)
(* which survives the demotion of its server.                              *)
(* It names the home that it greeted, and `enter' is the first call of     *)
(* every greeting: on a server whose name is not the home in the log, it   *)
(* writes the new home, and from there on numbers come from a block that   *)
(* no other home has (in the product a random jump).                       *)
(*                                                                         *)
(* What a position is: how many calls a history has answered.  A client    *)
(* remembers of each home the position that it was told last; at each      *)
(* greeting it compares that with the homes in the log, and reports what   *)
(* it was told and the log does not have.                                  *)
(*                                                                         *)
(* With Replicas > 0 an answer is passed on when a write made after it has *)
(* reached that many replicas: settled replies, which the product does not *)
(* have yet.  spec/failover.py reaches the same states with the Python     *)
(* functions.                                                              *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  NS, NC, NO,   \* servers, clients, calls with an id of their own
  Names,        \* homes that there may ever be
  PerHome,      \* numbers that one home may issue
  Length,       \* entries of the longest log
  Replicas,     \* replicas that must have a write before its caller is told
  On,           \* groups: demotes, restarts, own (each client has one call, which nobody else repeats), input (calls
                \* append: their numbers are those of items, which a mark tells apart, and may repeat)
  Mutant        \* "" or the name of a rule that is broken on purpose (spec/mutants.py)

Servers == 1..NS
Clients == 1..NC
Ops == 1..NO
Blocks == 1..Names - 1   \* Block 0 belongs to the first home.

VARIABLES
  log,       \* per server: <<"enter", name, block>>, <<"issue", id, number>>, <<"again", id, 0>>, <<"settle", 0, 0>>
  of,        \* per server: the one that it follows; 0 for a primary
  name,      \* per server: what INFO says now
  names,     \* how many names there were
  used,      \* per block: a home has it
  link,      \* per client: <<server, home that it greeted, end of the log after its own last write>>
  call,      \* per client: <<what has happened, id, position>> of the call in flight
  told,      \* per client and id: <<home, position>> when the answer was passed on
  lost,      \* per client and id: it was reported as lost
  sent,      \* per id: it may have run
  refused,   \* per id: its caller was told that it did not run, and will not repeat it
  issued,    \* per number: it was given out
  bad        \* the name of the first trace property that was broken, or ""

servers == <<log, of, name, names, used, issued>>
clients == <<link, call, told, lost, sent, refused>>
vars == <<servers, clients, bad>>

Has(group) == group \in On
Broken(mutant) == Mutant = mutant
Max(a, b) == IF a > b THEN a ELSE b
Flag(what, if) == bad' = IF bad = "" /\ if THEN what ELSE bad

Init ==
  /\ log = [s \in Servers |-> <<<<"enter", 1, 0>>>>]
  /\ of = [s \in Servers |-> IF s = 1 THEN 0 ELSE 1]
  /\ name = [s \in Servers |-> IF s = 1 THEN 1 ELSE 0]
  /\ names = 1 /\ used = [b \in Blocks |-> FALSE]
  /\ link = [c \in Clients |-> <<0, 0, 0>>]
  /\ call = [c \in Clients |-> <<"none", 0, 0>>]
  /\ told = [c \in Clients |-> [o \in Ops |-> <<0, 0>>]]
  /\ lost = [c \in Clients |-> [o \in Ops |-> FALSE]]
  /\ sent = [o \in Ops |-> FALSE] /\ refused = [o \in Ops |-> FALSE]
  /\ issued = [n \in 1..Names * PerHome |-> FALSE]
  /\ bad = ""

----------------------------------------------------------------------------
(* What a log says *)

Entries(g, kind) == {i \in 1..Len(g) : g[i][1] = kind}
Highest(S) == CHOOSE x \in S : \A y \in S : y <= x
LastEnter(g) == g[Highest(Entries(g, "enter"))]
Home(g) == LastEnter(g)[2]
Block(g) == LastEnter(g)[3]
Done(g) == {g[i][2] : i \in Entries(g, "issue")}
Position(g) == Cardinality(Entries(g, "issue") \cup Entries(g, "again"))
Number(g) == Highest({Block(g) * PerHome} \cup {g[i][3] : i \in Entries(g, "issue")}) + 1
IsPrefix(g, h) == Len(g) <= Len(h) /\ g = SubSeq(h, 1, Len(g))

\* Whether this history has what was told in home h at position p: the home is in it, and was left no earlier. The home
\* that goes on has not come so far, if its data went back and its server kept its name: that cannot happen here.
Survives(g, h, p) ==
  \E i \in Entries(g, "enter") :
    /\ g[i][2] = h
    /\ \/ Broken("position-not-compared")
       \/ /\ p <= Position(g)
          /\ \A j \in Entries(g, "enter") : j > i => p <= Position(SubSeq(g, 1, j))

----------------------------------------------------------------------------
(* Servers *)

Copy(r) ==
  LET g == log[of[r]] IN
  /\ of[r] # 0 /\ log[r] # g
  /\ log' = [log EXCEPT ![r] = IF IsPrefix(@, g) THEN SubSeq(g, 1, Len(@) + 1) ELSE g]
  /\ UNCHANGED <<of, name, names, used, issued, clients, bad>>

\* Anybody may promote any replica at any time; the old primary need not know.
Promote(r) ==
  /\ of[r] # 0 /\ names < Names
  /\ of' = [of EXCEPT ![r] = 0] /\ name' = [name EXCEPT ![r] = names + 1] /\ names' = names + 1
  /\ UNCHANGED <<log, used, issued, clients, bad>>

\* A primary becomes a replica, and its connections stay; or a replica turns to another primary.
Follow(s, p) ==
  /\ Has("demotes") \/ of[s] # 0
  /\ s # p /\ of[p] = 0 /\ of[s] # p
  /\ of' = [of EXCEPT ![s] = p]
  /\ UNCHANGED <<log, name, names, used, issued, clients, bad>>

\* A power cut: the primary comes back as such, with an older state.
Restart(s, k) ==
  /\ Has("restarts") /\ of[s] = 0 /\ names < Names /\ k < Len(log[s])
  /\ log' = [log EXCEPT ![s] = SubSeq(@, 1, k)]
  /\ name' = [name EXCEPT ![s] = names + 1] /\ names' = names + 1
  /\ link' = [c \in Clients |-> IF link[c][1] = s THEN <<0, 0, 0>> ELSE link[c]]
  /\ call' = [c \in Clients |-> IF link[c][1] = s THEN <<"none", 0, 0>> ELSE call[c]]
  /\ UNCHANGED <<of, used, issued, told, lost, sent, refused, bad>>

----------------------------------------------------------------------------
(* Clients *)

\* `enter', and what its answer tells: which homes there were, and where each ended.
Greet(c, s, b) ==
  LET known == Home(log[s]) = name[s]
      block == IF Broken("no-jump") THEN Block(log[s]) ELSE b
      g == IF known THEN log[s] ELSE Append(log[s], <<"enter", name[s], block>>)
  IN
  /\ of[s] = 0
  /\ IF known THEN b = 0 ELSE b > Block(log[s]) /\ b \in Blocks /\ ~used[b] /\ Len(log[s]) < Length
  /\ log' = [log EXCEPT ![s] = g]
  /\ used' = IF known THEN used ELSE [used EXCEPT ![b] = TRUE]
  /\ link' = [link EXCEPT ![c] = <<s, name[s], 0>>]
  /\ call' = [call EXCEPT ![c] = <<"none", 0, 0>>]
  /\ lost' = [lost EXCEPT ![c] = [o \in Ops |->
       @[o] \/ (told[c][o] # <<0, 0>> /\ ~Survives(g, told[c][o][1], told[c][o][2]))]]
  /\ UNCHANGED <<of, name, names, issued, told, sent, refused, bad>>

Linked(c) == link[c][1] # 0 /\ of[link[c][1]] = 0
\* The script compares the home that the call names, and what INFO says of the server that it runs on.
Fits(c) ==
  LET s == link[c][1] IN
  /\ link[c][2] = Home(log[s])
  /\ (name[s] = Home(log[s]) \/ Broken("info-not-compared") \/ Broken("append-not-compared"))

Calls(c, o) ==
  /\ Linked(c) /\ call[c][1] = "none" /\ ~refused[o] /\ told[c][o] = <<0, 0>>
  /\ Has("own") => c = o

Run(c, o, answered) ==
  LET s == link[c][1]
      g == log[s]
      n == Number(g)
      again == o \in Done(g)
      h == CASE ~again -> Append(g, <<"issue", o, n>>)
             [] Broken("settle-without-a-write") -> g
             [] OTHER -> Append(g, <<"again", o, 0>>)
  IN
  /\ Calls(c, o)
  /\ Fits(c)
  /\ Len(g) < Length /\ (again \/ n <= (Block(g) + 1) * PerHome)
  /\ log' = [log EXCEPT ![s] = h]
  /\ issued' = IF again THEN issued ELSE [issued EXCEPT ![n] = TRUE]
  /\ link' = IF h = g THEN link ELSE [link EXCEPT ![c][3] = Len(h)]
  /\ sent' = [sent EXCEPT ![o] = TRUE]
  /\ told' = IF answered /\ (Replicas = 0 \/ Broken("tell-before-settle"))
             THEN [told EXCEPT ![c][o] = <<link[c][2], Position(h)>>] ELSE told
  /\ Flag("Twice", ~again /\ issued[n] /\ ~Has("input"))
  /\ call' = IF Replicas > 0 /\ answered THEN [call EXCEPT ![c] = <<"ran", o, Position(h)>>] ELSE call
  /\ UNCHANGED <<of, name, names, used, lost, refused>>

\* HOME: nothing ran. The client must greet again; the caller of a call that never ran may give up.
Refuse(c, o, gives_up) ==
  LET s == link[c][1]
      g == log[s]
      runs == Broken("home-after-first-row") /\ o \notin Done(g) /\ Len(g) < Length /\ Number(g) <= (Block(g) + 1) * PerHome
  IN
  /\ Calls(c, o)
  /\ ~Fits(c)
  /\ log' = IF runs THEN [log EXCEPT ![s] = Append(@, <<"issue", o, Number(g)>>)] ELSE log
  /\ link' = [link EXCEPT ![c] = <<0, 0, 0>>]
  /\ gives_up => ~sent[o]
  /\ refused' = [refused EXCEPT ![o] = gives_up]
  /\ UNCHANGED <<of, name, names, used, issued, call, told, lost, sent, bad>>

\* The write behind a batch. It compares like any other script; refused, nothing of the batch is told. As long as every
\* call writes its own position, WAIT would do without this write: the mutant leaves out both.
Settle(c) ==
  LET s == link[c][1]
      writes == ~Broken("settle-without-a-write")
  IN
  /\ call[c][1] = "ran" /\ Linked(c)
  /\ IF Fits(c)
     THEN /\ writes => Len(log[s]) < Length
          /\ log' = IF writes THEN [log EXCEPT ![s] = Append(@, <<"settle", 0, 0>>)] ELSE log
          /\ link' = IF writes THEN [link EXCEPT ![c][3] = Len(log[s]) + 1] ELSE link
          /\ call' = [call EXCEPT ![c][1] = "waits"]
     ELSE /\ call' = [call EXCEPT ![c] = <<"none", 0, 0>>]
          /\ link' = [link EXCEPT ![c] = <<0, 0, 0>>]
          /\ UNCHANGED log
  /\ UNCHANGED <<of, name, names, used, issued, told, lost, sent, refused, bad>>

\* WAIT counts replicas by the end of the caller's own last write, and knows nothing of homes: so INFO is compared once
\* more, behind it.
Tell(c) ==
  LET s == link[c][1]
      reached == {r \in Servers : of[r] = s /\ IsPrefix(log[r], log[s]) /\ Len(log[r]) >= link[c][3]}
  IN
  /\ call[c][1] = "waits" /\ Linked(c)
  /\ Cardinality(reached) >= Replicas
  /\ name[s] = link[c][2] \/ Broken("wait-not-checked")
  /\ told' = [told EXCEPT ![c][call[c][2]] = <<link[c][2], call[c][3]>>]
  /\ Flag("OneSide", \E r \in Servers : r # s /\ of[r] = 0)
  /\ call' = [call EXCEPT ![c] = <<"none", 0, 0>>]
  /\ UNCHANGED <<servers, link, lost, sent, refused>>

\* WAIT was answered with too few, or not at all: the caller does not know, and may repeat it.
GiveUp(c) ==
  /\ call[c][1] # "none"
  /\ call' = [call EXCEPT ![c] = <<"none", 0, 0>>]
  /\ UNCHANGED <<servers, link, told, lost, sent, refused, bad>>

Next ==
  \/ \E s \in Servers : Copy(s) \/ Promote(s) \/ \E p \in Servers : Follow(s, p)
  \/ \E s \in Servers, k \in 1..Length : Restart(s, k)
  \/ \E c \in Clients :
       \/ \E s \in Servers, b \in 0..Names - 1 : Greet(c, s, b)
       \/ \E o \in Ops, yes \in BOOLEAN : Run(c, o, yes) \/ Refuse(c, o, yes)
       \/ Settle(c) \/ Tell(c) \/ GiveUp(c)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
\* No number is given out twice, by whatever primary.
Twice == bad # "Twice"

\* A call whose caller was told that it did not run is in no history.
NotRun == \A o \in Ops, s \in Servers : refused[o] => o \notin Done(log[s])

\* What a client was told is in the history of the home that it greeted, or was reported as lost.
Reported == \A c \in Clients, o \in Ops :
  LET s == link[c][1] IN
  s # 0 /\ told[c][o] # <<0, 0>> =>
    \/ of[s] # 0 \/ link[c][2] # Home(log[s]) \/ name[s] # Home(log[s])
    \/ o \in Done(log[s]) \/ lost[c][o]

\* Where every replica must have it: what anybody was told, every server has, and will have.
AllMust == Replicas > 0 /\ Replicas = NS - 1
Kept == AllMust => \A c \in Clients, o \in Ops, s \in Servers : told[c][o] # <<0, 0>> => o \in Done(log[s])

\* The same: while there are two primaries, nobody is told anything.
OneSide == AllMust => bad # "OneSide"
=============================================================================
