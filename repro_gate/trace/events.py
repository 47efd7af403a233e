"""Takes the events of one trace into a `Trace`: one method for each event, which holds every field to its type, range and size.
 What does not follow the format raises ValueError, KeyError, TypeError, IndexError or
OverflowError; the reader makes one error of them, with file and line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import fields
from . import format as fmt
from .fields import Row
from .model import Block, Drawn, Imported, LoaderSeen, Measured, Opened, Records, StepMark, Trace, Undone

MAX_UNDONE = MAX_NETWORK = MAX_NOTES = MAX_NONFINITE = 1000  # of each, the first are kept
ROLES = ("train", "evaluation")


class Events:
    """The events of one process so far. `handlers` has the method of each by name."""

    def __init__(self, trace: Trace, nonce: str | None) -> None:
        self.trace = trace
        self._nonce = nonce
        self._tables: list[tuple[str, tuple[Row, ...]]] = []
        self._at: dict[str, int] = {}  # blocks of each kind so far in the step of the last one
        handlers: list[Callable[[Mapping[str, Any]], None]] = [
            self._hello,
            self._facts,
            self._table,
            self._block,
            self._flags,
            self._undone,
            self._step,
            self._kept,
            self._distance,
            self._network,
            self._opened,
            self._imports,
            self._distributions,
            self._drawn,
            self._loader,
            self._records,
            self._variables,
            self._nonfinite,
            self._beside,
            self._note,
            self._stopped,
            self._end,
            self._resumed,
        ]
        self.handlers = {handler.__name__[1:]: handler for handler in handlers}

    def _hello(self, event: Mapping[str, Any]) -> None:
        if event["format"] != fmt.FORMAT:
            raise ValueError(f"format is not {fmt.FORMAT}")
        if self._nonce is not None and event["nonce"] != self._nonce:
            raise ValueError("it belongs to another run (the nonce differs)")
        self.trace.pid = fields.integer(event["pid"], 0, 1 << 31)
        self.trace.key = fields.text(event["key"], 200)
        self.trace.argv = tuple(fields.text(item, fmt.MAX_NAME) for item in fields.items(event["argv"], 1000))
        self.trace.forked = event["forked"] is True

    def _facts(self, event: Mapping[str, Any]) -> None:
        facts = fields.mapping(event["facts"], 200)
        self.trace.facts.update({fields.text(name, 200): fields.text(value, fmt.MAX_NAME) for name, value in facts.items()})
        if "process" in self.trace.facts:
            self.trace.key = self.trace.facts["process"]

    def _table(self, event: Mapping[str, Any]) -> None:
        if event["id"] != len(self._tables) or len(self._tables) >= fmt.MAX_TABLES:
            raise ValueError("tables are numbered from 0 in order")
        rows = tuple(fields.row(row) for row in fields.items(event["rows"], fmt.MAX_ROWS))
        self._tables.append((fields.kind(event["kind"]), rows))

    def _block(self, event: Mapping[str, Any]) -> None:
        kind, rows = self._tables[fields.integer(event["table"], 0, len(self._tables) - 1)]
        if event["kind"] != kind:
            raise ValueError("its table is of another kind")
        digests = fields.digests(event["digests"])
        if len(digests) != fmt.DIGEST_BYTES * len(rows):
            raise ValueError(f"{len(digests)} bytes of digests for {len(rows)} rows")
        values = tuple(fields.hex_float(item) for item in fields.items(event.get("values", []), fmt.MAX_ROWS))
        step, at = fields.integer(event["step"], -1, fmt.MAX_STEP), fields.integer(event["at"], 0, fmt.MAX_STEP)
        if self.trace.blocks and step < self.trace.blocks[-1].step:
            raise ValueError(f"step {step} after step {self.trace.blocks[-1].step}")
        if not self.trace.blocks or step > self.trace.blocks[-1].step:
            self._at = {}
        if at != self._at.get(kind, 0):
            raise ValueError(f"block {at} of its kind where {self._at.get(kind, 0)} was due")
        self._at[kind] = at + 1
        self.trace.blocks.append(Block(step, kind, at, rows, digests, values))

    def _flags(self, event: Mapping[str, Any]) -> None:
        if event["id"] != len(self.trace.settings) or len(self.trace.settings) >= 10_000:
            raise ValueError("readings are numbered from 0 in order")
        settings = fields.mapping(event["settings"], 200)
        self.trace.settings.append({fields.text(name, 200): fields.plain(value) for name, value in settings.items()})

    def _undone(self, event: Mapping[str, Any]) -> None:
        if len(self.trace.undone) < MAX_UNDONE:
            self.trace.undone.append(
                Undone(
                    fields.text(event["flag"], 200),
                    fields.text(event["value"], 200),
                    fields.text(event["file"], fmt.MAX_NAME),
                    fields.integer(event["line"], 0, 1 << 31),
                    fields.integer(event["step"], -1, fmt.MAX_STEP),
                )
            )

    def _step(self, event: Mapping[str, Any]) -> None:
        step = fields.integer(event["step"], 0, fmt.MAX_STEP)
        if step != len(self.trace.steps):
            raise ValueError(f"step {step} where {len(self.trace.steps)} was due")
        flags = fields.integer(event["flags"], 0, len(self.trace.settings) - 1)
        self.trace.steps.append(
            StepMark(
                step,
                fields.number(event["ms"], 0, 1e10),
                fields.number(event["probe_ms"], 0, 1e10),
                fields.integer(event["peak_bytes"], 0, 1 << 60),
                flags,
            )
        )

    def _kept(self, event: Mapping[str, Any]) -> None:
        name = fields.text(event["file"], 200)
        if "/" in name or name.startswith("."):
            raise ValueError("a kept file lies beside its trace")
        self.trace.kept.append((fields.integer(event["step"], -1, fmt.MAX_STEP), name))

    def _distance(self, event: Mapping[str, Any]) -> None:
        step = fields.integer(event["step"], -1, fmt.MAX_STEP)
        for row in fields.items(event["rows"], fmt.MAX_ROWS):
            kind, name, dtype, shape, max_abs, max_ulp, l2, reference = row
            ulps = None if max_ulp is None else fields.integer(max_ulp, 0, 1 << 65)
            self.trace.distances.append(
                Measured(
                    step,
                    fields.kind(kind),
                    *fields.row([name, dtype, shape]),
                    fields.figure(max_abs),
                    ulps,
                    fields.figure(l2),
                    fields.figure(reference),
                )
            )

    def _network(self, event: Mapping[str, Any]) -> None:
        if len(self.trace.network) < MAX_NETWORK:
            self.trace.network.append(fields.text(event["address"], 300))

    def _opened(self, event: Mapping[str, Any]) -> None:
        for row in fields.items(event["files"], fmt.MAX_OPENED):
            path, inside, by, *left = row
            if not isinstance(inside, bool) or left not in ([], [True], [False]):
                raise ValueError("`inside` or `left` is no truth value")
            place = fields.relative_path(path) if inside else fields.absolute_path(path)
            if len(self.trace.opened) >= fmt.MAX_OPENED:
                raise ValueError(f"more than {fmt.MAX_OPENED} files")
            self.trace.opened.append(Opened(place, inside, fields.text(by, fmt.MAX_NAME), left == [True]))

    def _imports(self, event: Mapping[str, Any]) -> None:
        for name, path, distribution in fields.items(event["modules"], fmt.MAX_IMPORTS):
            if len(self.trace.imports) >= 2 * fmt.MAX_IMPORTS:
                raise ValueError(f"more than {2 * fmt.MAX_IMPORTS} modules")
            named = fields.text(name, fmt.MAX_NAME), fields.absolute_path(path), fields.text(distribution, 200)
            self.trace.imports.append(Imported(*named))

    def _distributions(self, event: Mapping[str, Any]) -> None:
        if self.trace.distributions is not None:
            raise ValueError("they are written once")
        versions = fields.mapping(event["versions"], fmt.MAX_DISTRIBUTIONS)
        self.trace.distributions = {fields.text(name, 200): fields.text(version, 200) for name, version in versions.items()}

    def _drawn(self, event: Mapping[str, Any]) -> None:
        if len(self.trace.drawn) >= fmt.MAX_DRAWN:
            raise ValueError(f"more than {fmt.MAX_DRAWN} draws")
        source, file = fields.text(event["source"], 200), fields.text(event["file"], fmt.MAX_NAME)
        self.trace.drawn.append(Drawn(source, file, fields.integer(event["line"], 0, 1 << 31)))

    def _loader(self, event: Mapping[str, Any]) -> None:
        if event["number"] != len(self.trace.loaders) or len(self.trace.loaders) >= fmt.MAX_LOADERS:
            raise ValueError("loaders are numbered from 0 in order")
        seed = event["base_seed"]
        seen = LoaderSeen(
            len(self.trace.loaders),
            fields.integer(event["workers"], 0, 1 << 20),
            None if seed is None else fields.integer(seed, -(1 << 63), (1 << 64) - 1),
            None if event["dataset"] is None else fields.integer(event["dataset"], 0, 1 << 20),
        )
        self.trace.loaders.append(seen)

    def _records(self, event: Mapping[str, Any]) -> None:
        loader = fields.integer(event["loader"], 0, len(self.trace.loaders) - 1)
        if any(item.loader == loader for item in self.trace.records):
            raise ValueError(f"the records of loader {loader} are written once")
        if event["role"] not in ROLES or not isinstance(event["whole"], bool):
            raise ValueError("unknown role, or `whole` is no truth value")
        digests = fields.digests(event["digests"])
        if len(digests) % fmt.RECORD_BYTES or len(digests) > fmt.RECORD_BYTES * fmt.MAX_RECORDS:
            raise ValueError(f"{len(digests)} bytes are no digests of at most {fmt.MAX_RECORDS} records")
        self.trace.records.append(Records(loader, event["role"], digests, event["whole"]))

    def _variables(self, event: Mapping[str, Any]) -> None:
        values = fields.mapping(event["values"], fmt.MAX_VARIABLES)
        self.trace.variables = {fields.text(name, 200): fields.text(value, fmt.MAX_NAME) for name, value in values.items()}

    def _nonfinite(self, event: Mapping[str, Any]) -> None:
        for kind, name, step, whole in fields.items(event["rows"], MAX_NONFINITE):
            if len(self.trace.nonfinite) >= MAX_NONFINITE or not isinstance(whole, bool):
                raise ValueError(f"more than {MAX_NONFINITE} tensors, or `whole` is no truth value")
            self.trace.nonfinite.append((fields.kind(kind), fields.text(name, fmt.MAX_NAME), fields.integer(step, -1, fmt.MAX_STEP), whole))

    def _beside(self, event: Mapping[str, Any]) -> None:
        rows = fields.items(event["rows"], fmt.MAX_BESIDE)
        self.trace.beside = [
            (fields.text(what, 20), fields.text(name, fmt.MAX_BESIDE_NAME), fields.text(digest, 32)) for what, name, digest in rows
        ]

    def _note(self, event: Mapping[str, Any]) -> None:
        if len(self.trace.notes) < MAX_NOTES:
            self.trace.notes.append((fields.text(event["id"], 100), fields.text(event["message"], fmt.MAX_NAME)))

    def _stopped(self, event: Mapping[str, Any]) -> None:
        self._count(event)
        self.trace.stopped = True

    def _resumed(self, event: Mapping[str, Any]) -> None:
        self._count(event)
        self.trace.end = None

    def _end(self, event: Mapping[str, Any]) -> None:
        if event["reason"] not in fmt.END_REASONS:
            raise ValueError("unknown reason")
        self._count(event)
        self.trace.end = event["reason"]

    def _count(self, event: Mapping[str, Any]) -> None:
        if fields.integer(event["steps"], 0, fmt.MAX_STEP) != len(self.trace.steps):
            raise ValueError(f"it counts {event['steps']} steps, the trace holds {len(self.trace.steps)}")
