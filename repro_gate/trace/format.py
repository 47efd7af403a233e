"""The trace format, in one page: JSON lines, one file for each process and further thread that
trains, appended as training goes.

Every line is a JSON object whose `e` names the event; `model.py` declares what each event holds.
The first is `hello`, the last `end` (a trace that trained, was not `stopped` and has no `end` is
truncated); rows are named once in a `table`, and a `block` refers to it: it holds the digests of
all rows. Tables, readings of the flags and the blocks of one (step, kind) are numbered from 0 in
their order, so that blocks of two traces are paired by (step, kind, number). What the probe notices
beside tensors is an event of its own, at most as often in one process as `LIMITS` says. Step -1 is
the state before the first optimizer step. Digests are described in `probe/digest.py`."""

from __future__ import annotations

import re

FORMAT = "repro-gate/trace/v3"
DIGEST_BYTES = 16
DIGESTS = ("xxh3-128", "sha256-128")  # values of the fact `digest`
SUFFIX = ".trace.jsonl"
# environment variable: path of the probe's configuration
CONFIG_VARIABLE = "REPRO_GATE_PROBE"
# behind a file's path, as the source of a use: the file was not read
ASKED = " (whether it is there)"
# behind the source of a draw, before the library's module that drew on behalf of the line
BY_LIBRARY = " by "
# behind a command, as the source of a use: a digest of all lines that it printed
ANY_ORDER = " (its lines in any order)"
# behind a call, as the source of a use: it takes what several threads or processes have done as
# they are done
HANDED = " (as it comes)"
# behind what is shared between processes: a line read it, at another moment in each run
SHARED = " (as it changes)"
# behind a call, as the source of a use of the clock: it ended by its time limit
TIMED = " (its time was over)"
# the source of a use: a process whose own hashes are random
RANDOM_HASHES = "a Python without PYTHONHASHSEED"
# the source of a use: a line makes a set of tensors, whose order follows their addresses
SET_OF_TENSORS = "Tensor.__hash__"
# where the machine says of itself, as the source of a use
OF_MACHINE = ("/proc/", "/sys/")
# beside the traces; its blocks are allocated before training, so that it can be written on a full
# disk
FAILURE_FILE = "failure.json"
FAILURE_BYTES = 4096

# what torch says of an operator that it refuses
REFUSAL = r"(?:^|: )([^:]{1,80}) does not have a deterministic implementation"
KINDS = ("rng", "batch", "buffer", "loss", "gradient", "parameter", "optimizer")

# id of the note in the trace of a process that took no step and counts as one, for the artifacts'
# sake
WHOLE_RUN = "whole-run"

# Limits on what the reader accepts: a trace is written by untrusted code.
SECONDS, BYTES, MEMORY, ALL_DIGESTS = (
    "seconds of reading",
    "bytes",
    "bytes of memory",  # estimated: VALUE_BYTES for each value, and texts
    "bytes of digests",
)
# all processes of a run together
MAX_OF_RUN = {
    SECONDS: 600,
    BYTES: 16 << 30,
    MEMORY: 1 << 30,
    ALL_DIGESTS: 8 << 30,
}
VALUE_BYTES = 64
MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_FILES = 65_536  # every forked loader worker opens one
MAX_NAME = 4096
MAX_ROWS = 1_000_000
MAX_STEP = 1_000_000_000
MAX_OPENED = 20_000  # files of one process
MAX_IMPORTS = 1_000  # of one process
MAX_DISTRIBUTIONS = 5_000
MAX_DRAWN = 1_000
MAX_USES = 20_000  # of factors, in one process: one for each step, factor and line
MAX_OPERATORS = 200_000  # dispatched in the steps that are recorded
MAX_CALLS = 500  # distinct calls of operators in one step
MAX_FORM = 1 << 16  # characters of the arguments of one call
MAX_VARIABLES = 1_000
MAX_UNMOVED = 10_000  # modules and attributes that no optimizer updates
LIMITS = {  # event -> how many of one process, or rows of them: the probe writes no more
    "calls": MAX_CALLS,
    "distances": MAX_ROWS,
    "drawn": MAX_DRAWN,
    "imports": 2 * MAX_IMPORTS,
    "loaders": 1_000,
    "network": 100,
    "nonfinite": 1_000,
    "notes": 1_000,
    "opened": MAX_OPENED,
    "operators": MAX_OPERATORS,
    "refused": 1_000,
    "sketches": 1_000,
    "spawned": 1_000,
    "undone": 1_000,
    "unmoved": MAX_UNMOVED,
    "uses": MAX_USES,
}

SCALER = "grad_scaler."  # how the names of a gradient scaler's state begin
# parts of a parameter's name that come from a wrapper of a module, and are never its own
WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def unwrapped(name: str) -> str:
    """Return the name that a parameter has without the wrappers of its model, DDP's `module`
    too."""
    parts = name.split(".")
    return ".".join([part for part in parts if part not in ("module", *WRAPPED)])


# Names of variables that hold a secret: by a word of the name; personal access tokens, data source
# names, keys and passwords by its end; services' addresses, in which passwords stand.
SECRET = re.compile(
    r"TOKEN|JWT|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE|COOKIE|AUTH"
    r"|(?:^|_)PAT(?:_|$)|_(?:DSN|PWD|PASS|KEY)$|PASSPHRASE|CONNECTION_?STRING|WEBHOOK"
    r"|(?:^|_)(?:DATABASE|DB|REDIS|MONGO(?:DB)?|POSTGRES(?:QL)?|MYSQL|AMQP|RABBITMQ|BROKER)_UR[IL]$",
    re.IGNORECASE,
)
