"""The factors: what lies outside the declared inputs and may differ between two runs, and what a
person is told about each.

A factor can be watched, pinned or varied; what comes from outside the process (leftovers, files,
network, commands) is watched only. How that is done inside the training's process is the
probe's (`probe/factors/`, one file each); what the gate does from outside it (environment, address
layout) stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

Cause: TypeAlias = Literal[
    "nondeterministic-op",
    "unseeded-rng",
    "wall-clock",
    "process-identity",
    "hash-order",
    "file-order",
    "thread-race",
    "uninitialized-memory",
    "determinism-disabled",
    "leftover-state",
    "external-input",
    "unknown",
]
CAUSES: tuple[Cause, ...] = get_args(Cause)
Site = tuple[str, int]  # file of the workspace and line


@dataclass(frozen=True, kw_only=True)
class Factor:
    """One factor. `did` completes "`CALL` in FILE:LINE …" for a person; `remedy` says what to write
    instead.

    `proof` says what was pinned where a run proves it; empty: nothing can pin it. `by_line`: the
    probe can pin single lines; else the whole run is pinned. `pinned` are environment variables
    that pin it; `fixed_addresses`: it is pinned by turning address randomisation off.
    """

    name: str
    cause: Cause
    did: str
    remedy: str
    proof: str = ""
    by_line: bool = True
    pinned: Mapping[str, str] = field(default_factory=dict)
    fixed_addresses: bool = False


# Determinism flags that the training switches off itself.
FLAGS = Factor(
    name="flags",
    cause="determinism-disabled",
    did="switched a determinism flag off",
    proof="with the flag kept on",
    remedy="leave the flag alone, or allow it under determinism.allow with a reason",
)

# Random bytes of the operating system, which no seed decides.
ENTROPY = Factor(
    name="entropy",
    cause="unseeded-rng",
    did="drew from the operating system",
    proof="with that draw held fixed",
    remedy="give the generator a seed of its own: `default_rng(seed)`, `random.Random(seed)`, "
    "`generator.manual_seed(seed)`, `env.reset(seed=seed)`",
)

# The time of day, durations and the times of files.
CLOCK = Factor(
    name="clock",
    cause="wall-clock",
    did="read the clock",
    proof="with that time held fixed",
    remedy="keep time out of the numbers: count steps, and make seeds, schedules and budgets of "
    "what is declared",
)

# The order in which a file system lists a directory.
LISTING = Factor(
    name="listing",
    cause="file-order",
    did="took the order in which the file system lists a directory",
    proof="with that listing sorted",
    remedy="sort what `listdir`, `scandir`, `glob` and `walk` give before you use it",
)

# Process and thread numbers, host and user names, names of temporary files.
IDENTITY = Factor(
    name="identity",
    cause="process-identity",
    did="asked who the process is",
    proof="with that answer held fixed",
    remedy="make seeds and names of the rank or of a number that the configuration declares, not "
    "of the process, host or path",
)

# The hash seed of strings in child processes that drop `PYTHONHASHSEED`, or ignore it (`python -I`,
# `-E`).
HASHING = Factor(
    name="hashing",
    cause="hash-order",
    did="started a Python whose string hashes are random",
    proof="with the hash seed of children held fixed",
    remedy="sort what comes out of a set, or hand PYTHONHASHSEED on to the child",
)

# Files outside the workspace that an earlier run of the same training wrote.
LEFTOVERS = Factor(
    name="leftovers",
    cause="leftover-state",
    did="read what an earlier run had left outside its workspace",
    remedy="write below the working directory, or clear that place before the run; declare under "
    "`data` what every run shall begin with",
)

# Files outside the workspace that nobody declared and that something else changes; what the machine
# says of itself (`/proc`, `/sys`).
FILES = Factor(
    name="files",
    cause="external-input",
    did="read a file outside the checkout that changed between the runs",
    remedy="copy the file into the checkout or declare it under `data` with its sha256; keep the "
    "state of the machine out of the numbers",
)

# What a socket receives from outside the training's own processes.
NETWORK = Factor(
    name="network",
    cause="external-input",
    did="received something else from the network in each run",
    remedy="fetch it once, keep it in the checkout or declare it under `data` with its sha256, and "
    "train from that",
)

# What programs print that the training starts and reads from.
COMMANDS = Factor(
    name="commands",
    cause="external-input",
    did="started a program that printed something else in each run",
    remedy="keep what the program prints in a file of the checkout, or give it inputs and a seed "
    "that are declared",
)

# The same lines in another order: the program ran several at once.
PARALLEL = Factor(
    name="parallel",
    cause="thread-race",
    did="read the output of programs that run side by side, in the order in which it came",
    remedy="sort the lines, number them, or run the programs one after the other",
)

# Where objects lie in memory: `id()`, the default `hash()` and `repr()`, and the order of sets and
# dictionaries keyed by objects.
ADDRESSES = Factor(
    name="addresses",
    cause="process-identity",
    did="used the address of an object",
    proof="with the address layout held fixed",
    remedy="order and key objects by a name or number of theirs; give classes in sets a `__hash__` "
    "made of their values",
    fixed_addresses=True,
)

# The order in which threads and worker processes run and finish.
THREADS = Factor(
    name="threads",
    cause="thread-race",
    did="started threads whose order decides",
    proof="with threads taking turns",
    remedy="collect results by their index, not as they finish; guard shared state with a lock; "
    "let one thread write",
    by_line=False,
    pinned={"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
)

# What a line of THREADS did that starts none.
HANDED_OVER = "took results in the order in which they came"

# What memory holds before it is written: `torch.empty`, `np.empty`.
MEMORY = Factor(
    name="memory",
    cause="uninitialized-memory",
    did="read memory that nothing had written",
    proof="with fresh memory filled by a fixed pattern",
    remedy="use zeros(), or write every element before the first read",
    pinned={"MALLOC_PERTURB_": "85"},
)

# In the order in which they are tried: what explains most divergences, and is pinned at the least
# risk, comes first; last what nothing can pin.
FACTORS = (
    FLAGS,
    ENTROPY,
    CLOCK,
    LISTING,
    IDENTITY,
    HASHING,
    ADDRESSES,
    THREADS,
    MEMORY,
    LEFTOVERS,
    FILES,
    NETWORK,
    COMMANDS,
    PARALLEL,
)
PINNED = tuple(factor for factor in FACTORS if factor.proof)
BY_NAME = {factor.name: factor for factor in FACTORS}
