"""The factors: what lies outside the declared inputs and may differ between two runs, and what a
person is told about each.

A factor can be watched, pinned or varied; what comes from outside the process (leftovers, files,
network, commands) is watched only. How that is done inside the training's process is the
probe's (`probe/factors/`, one file each); what the gate does from outside it (environment, address
layout) stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

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


class Factor(NamedTuple):
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
    pinned: Mapping[str, str] = {}
    fixed_addresses: bool = False


_OF_THE_RANK = (
    "make seeds and names of the rank or of a number that the configuration declares, not of the "
    "process, host or path"
)
# In the order in which they are tried within one of `diagnosis.diagnose.stages`: what explains most
# divergences, and is pinned at the least risk, comes first; last what nothing can pin.
FACTORS = (
    # Determinism flags that the training switches off itself.
    Factor(
        "flags",
        "determinism-disabled",
        "switched a determinism flag off",
        "leave the flag alone, or allow it under determinism.allow with a reason",
        proof="with the flag kept on",
    ),
    # Random bytes of the operating system, which no seed decides.
    Factor(
        "entropy",
        "unseeded-rng",
        "drew from the operating system",
        "give the generator a seed of its own: `default_rng(seed)`, "
        "`random.Random(seed)`, `generator.manual_seed(seed)`, `env.reset(seed=seed)`",
        proof="with that draw held fixed",
    ),
    # The time of day, durations and the times of files.
    Factor(
        "clock",
        "wall-clock",
        "read the clock",
        "keep time out of the numbers: count steps, and make seeds, schedules and "
        "budgets of what is declared",
        proof="with that time held fixed",
    ),
    # The order in which a file system lists a directory.
    Factor(
        "listing",
        "file-order",
        "took the order in which the file system lists a directory",
        "sort what `listdir`, `scandir`, `glob` and `walk` give before you use it",
        proof="with that listing sorted",
    ),
    # Process and thread numbers, host and user names, names of temporary files.
    Factor(
        "identity",
        "process-identity",
        "asked who the process is",
        _OF_THE_RANK,
        proof="with that answer held fixed",
    ),
    # The hash seed of strings in child processes that drop `PYTHONHASHSEED`, or ignore it
    # (`python -I`, `-E`).
    Factor(
        "hashing",
        "hash-order",
        "started a Python whose string hashes are random",
        "sort what comes out of a set, or hand PYTHONHASHSEED on to the child",
        proof="with the hash seed of children held fixed",
    ),
    # The configurations of kernels that Triton's autotuner chose.
    Factor(
        "autotune",
        "nondeterministic-op",
        "was chosen by timing it",
        "give the kernel one configuration: take it out of `@triton.autotune`",
        proof="with the first configuration that runs chosen in each run",
    ),
    # Where objects lie in memory: `id()`, the default `hash()` and `repr()`, and the order of sets
    # and dictionaries keyed by objects.
    Factor(
        "addresses",
        "process-identity",
        "used the address of an object",
        "order and key objects by a name or number of theirs; give classes in sets a "
        "`__hash__` made of their values",
        proof="with the address layout held fixed",
        fixed_addresses=True,
    ),
    # The order in which threads and worker processes run and finish.
    Factor(
        "threads",
        "thread-race",
        "started threads whose order decides",
        "collect results by their index, not as they finish; guard shared state with a "
        "lock; let one thread write",
        proof="with threads taking turns",
        by_line=False,
        pinned={"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    ),
    # What memory holds before it is written: `torch.empty`, `np.empty`.
    Factor(
        "memory",
        "uninitialized-memory",
        "read memory that nothing had written",
        "use zeros(), or write every element before the first read",
        proof="with fresh memory filled by a fixed pattern",
        pinned={"MALLOC_PERTURB_": "85"},
    ),
    # Files outside the workspace that an earlier run of the same training wrote.
    Factor(
        "leftovers",
        "leftover-state",
        "read what an earlier run had left outside its workspace",
        "write below the working directory, or clear that place before the run; "
        "declare under `data` what every run shall begin with",
    ),
    # Files outside the workspace that nobody declared and that something else changes; what the
    # machine says of itself (`/proc`, `/sys`).
    Factor(
        "files",
        "external-input",
        "read a file outside the checkout that changed between the runs",
        "copy the file into the checkout or declare it under `data` with its sha256; "
        "keep the state of the machine out of the numbers",
    ),
    # What the system says of the process itself: `/proc/self`.
    Factor(
        "process",
        "process-identity",
        "read what the system says of the process itself",
        _OF_THE_RANK,
    ),
    # What a socket receives from outside the training's own processes.
    Factor(
        "network",
        "external-input",
        "received something else from the network in each run",
        "fetch it once, keep it in the checkout or declare it under `data` with its "
        "sha256, and train from that",
    ),
    # What programs print that the training starts and reads from.
    Factor(
        "commands",
        "external-input",
        "started a program that printed something else in each run",
        "keep what the program prints in a file of the checkout, or give it inputs and "
        "a seed that are declared",
    ),
    # The same lines in another order: the program ran several at once.
    Factor(
        "parallel",
        "thread-race",
        "read the output of programs that run side by side, in the order in which it came",
        "sort the lines, number them, or run the programs one after the other",
    ),
)
PINNED = tuple(factor for factor in FACTORS if factor.proof)
BY_NAME = {factor.name: factor for factor in FACTORS}
ENTROPY = BY_NAME["entropy"]
LEFTOVERS = BY_NAME["leftovers"]
MEMORY = BY_NAME["memory"]
# What a line of threads did that starts none.
HANDED_OVER = "took results in the order in which they came"
# What it did if it read what processes share.
READ_SHARED = "read shared state at another moment in each run"
# What a line of the clock did that reads none: a timer, a wait with a time limit.
TIMED_OUT = "ended work after a time"
# What a line of a child did that started without the hash seed.
RANDOM_ORDER = (
    "depends on string hashes, which are random in a child without PYTHONHASHSEED"
)
