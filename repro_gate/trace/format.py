"""The trace format, in one page: JSON lines, one file for each process, appended as training goes.

Used by the writer (in the training process: standard library only, Python 3.9 syntax) and by the reader (on the gate's side).
Every line is a JSON object whose `e` names the event:

    hello     first line: format, nonce of the run, pid, argv, process key, forked
    facts     what the process is: python, torch, devices, threads (before the first block; again what differs at the first step)
    table     id, kind, rows [[name, dtype, shape], …]: named once, referred to by blocks
    block     step, kind, table, at, digests (base64 of 16 bytes for each row), values (hex floats, for losses and numbers of an optimizer)
    flags     id, settings {flag: value}: written when a reading differs from the last
    undone    flag, value, file, line, step: training code that set a determinism flag to another value
    step      step, ms, probe_ms, peak_bytes, flags: one for each optimizer step; closes the step
    kept      step, file, rows: tensors kept for measuring distances
    distance  step, rows [[kind, name, dtype, shape, max_abs, max_ulp, l2, reference_l2], …]
    network   address: a connection that left the machine
    opened    files [[path, inside, by, left], …]: files that were there before the run and were opened for reading; `left`: an earlier
              run of the same gate run made or changed it
    imports   modules [[name, path, distribution], …]: imported from the original checkout instead of the workspace, or from an installed
              copy of what the checkout holds (then `distribution` is its name)
    distributions  versions {name: version}: what of the installed distributions was imported
    drawn     source, file, line: a draw from the operating system's entropy by a line of the workspace
    loader    number, workers, base_seed, dataset: one torch DataLoader, at its first batch
    records   loader, role, digests (base64 of 8 bytes for each record), whole: what a DataLoader handed out, at the end
    variables values {name: value}: environment variables that torch or CUDA read, at the first step
    nonfinite rows [[kind, name, step, whole], …]: tensors that held NaN at `step` and still do at the end; `whole`: in every element
    beside    rows [[`module` or `attribute`, name, digest as hex], …]: what no optimizer moves, at the end; for a notice
    note      id, message: what the probe could not do
    stopped   steps: the last wanted step was taken: what follows is the state in which the process ended
    end       reason (`steps`, `exit`, `exception`), steps: last line; a trace that trained, was not stopped and has none is truncated
    resumed   steps: only after `end`: the program that was to take the process's place could not be started

`at` counts the blocks of one (step, kind) from 0, so that blocks of two traces are paired by (step, kind, at). Step -1 is the state
before the first optimizer step. Digests are described in `probe/digest.py`.
"""

from __future__ import annotations

FORMAT = "repro-gate/trace/v1"
DIGEST_BYTES = 16
SUFFIX = ".trace.jsonl"
CONFIG_VARIABLE = "REPRO_GATE_PROBE"  # environment variable: path of the probe's configuration
FAILURE_FILE = "failure.json"  # beside the traces; its blocks are allocated before training, so that it can be written on a full disk
FAILURE_BYTES = 4096

KINDS = ("rng", "batch", "buffer", "loss", "gradient", "parameter", "optimizer")
WHOLE_RUN = "whole-run"  # id of the note in the trace of a process that took no step and counts as one, for the artifacts' sake
END_REASONS = ("steps", "exit", "exception")

# Limits on what the reader accepts: a trace is written by an untrusted process.
MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_FILE_BYTES = 4 * 1024 * 1024 * 1024
MAX_FILES = 65_536  # every forked loader worker opens one
MAX_NAME = 4096
MAX_ROWS = 1_000_000
MAX_STEP = 1_000_000_000
MAX_TABLES = 200_000
RECORD_BYTES = 8  # of one record's digest
MAX_LOADERS = 1_000  # of one process
MAX_RECORDS = 1_000_000  # of one process
MAX_OPENED = 20_000  # files of one process
MAX_IMPORTS = 1_000  # of one process
MAX_DISTRIBUTIONS = 5_000
MAX_DRAWN = 1_000
MAX_VARIABLES = 1_000
MAX_BESIDE = 10_000  # modules and attributes beside the training
MAX_BESIDE_NAME = 300
