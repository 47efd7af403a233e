"""`repro.yml` to `Spec`: read the file, lay the command line over it, validate it, build the dataclasses.
All mistakes of a file are raised together, as one `SpecError`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from repro_gate.files import leads_out
from repro_gate.spec.document import Document, parse
from repro_gate.spec.errors import KeyPath, Problem, Refused, SpecError
from repro_gate.spec.messages import shown
from repro_gate.spec.model import (
    AllowedFlag,
    BaselineRule,
    Capture,
    Checklist,
    CostBudget,
    DataItem,
    Determinism,
    Env,
    Hardware,
    RandomState,
    Spec,
    Tolerance,
    Train,
    Waiver,
)
from repro_gate.spec.overrides import with_overrides
from repro_gate.spec.validation import problems_in, seconds

FILE_NAME = "repro.yml"
MAX_BYTES = 1 << 20

_CONFLICT = re.compile(r"^(<{7}|>{7}|\|{7}) ", re.MULTILINE)
_LINKED = "let the link lead to a file of the checkout, or name the spec by its own path"
_START_ONE = "write one with `repro-gate init`, or name the file: `repro-gate run path/to/repro.yml`"


def load_spec(path: Path, overrides: Sequence[str] = (), *, seed: int | None = None, steps: int | None = None) -> Spec:
    """The spec at `path` (a file, or a folder that holds a `repro.yml`), with the command line's settings laid over it.

    `overrides` are `key=value` as `--set` takes them; `seed` and `steps` are `--seed` and `--steps`. Raises `SpecError` with all problems.
    """
    source = str(path)
    try:
        file = path / FILE_NAME if path.is_dir() else path
        source = str(file)
        text = _text(file)
    except Refused as refused:
        raise SpecError(source, [refused.problem], remedy=refused.remedy) from None
    return _loaded(text, source, Path(os.path.abspath(file)), overrides, seed, steps)


def load_spec_bytes(
    raw: bytes, source: str, path: Path, overrides: Sequence[str] = (), *, seed: int | None = None, steps: int | None = None
) -> Spec:
    """A spec that stands elsewhere, in another commit say, as if it stood at `path`; `source` names it in mistakes. As `load_spec`."""
    try:
        text = _decoded_whole(raw)
    except Refused as refused:
        raise SpecError(source, [refused.problem], remedy=refused.remedy) from None
    return _loaded(text, source, path, overrides, seed, steps)


def key_lines(path: Path) -> Mapping[KeyPath, int]:
    """The line of each key and value of the file at `path`, a spec that loads; empty where it cannot be read."""
    try:
        document = parse(_text(path))
    except Refused:
        return {}
    places = {**document.values, **document.keys}
    return {key: place.line for key, place in places.items() if place.line is not None}


def _loaded(text: str, source: str, path: Path, overrides: Sequence[str], seed: int | None, steps: int | None) -> Spec:
    try:
        conflict = _CONFLICT.search(text)
        if conflict is not None:
            line = text.count("\n", 0, conflict.start()) + 1
            raise Refused(Problem(line, 1, "", "a merge conflict stands here, resolve it and remove the markers"))
        document = parse(text)
        if document.data is None or not isinstance(document.data, dict):
            raise Refused(_no_mapping(document), remedy=_START_ONE)
    except Refused as refused:
        raise SpecError(source, [refused.problem], remedy=refused.remedy) from None
    document = with_overrides(document, overrides, seed=seed, steps=steps)
    problems = problems_in(document)
    if problems:
        raise SpecError(source, problems)
    return _spec(path, document)


def _text(file: Path) -> str:
    """The file's text. Never reads more than a spec may be, nor from what is no file (a pipe would hang, a device would not end)."""
    try:
        if why := leads_out(file, _checkout_of(file)):
            raise Refused(Problem(None, None, "", f"a link leads to a file that {why}: it is not read"), remedy=_LINKED)
        if not file.exists():
            raise Refused(Problem(None, None, "", _missing(file)), remedy=_START_ONE)
        if not file.is_file():
            raise Refused(Problem(None, None, "", "this is no regular file, wanted a YAML file"), remedy=_START_ONE)
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Refused(Problem(None, None, "", f"cannot be read: {reason}")) from None
    return _decoded_whole(raw)


def _checkout_of(file: Path) -> Path:
    """The checkout that a spec belongs to, by the path that names it, for the file may be a link: the nearest folder above with a `.git`;
    else the folder that the file lies in."""
    folder = Path(os.path.abspath(file)).parent
    above = [folder, *folder.parents]
    above += Path(os.path.realpath(folder), "-").parents  # a path that leads into the checkout through a link above it
    return next((place for place in above if os.path.lexists(place / ".git")), folder)


def _decoded_whole(raw: bytes) -> str:
    if len(raw) > MAX_BYTES:
        raise Refused(Problem(None, None, "", "larger than 1 MiB, a spec is far smaller: is this the right file?"))
    return _decoded(raw)


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The codec has cut off a byte order mark before it counted.
        body = raw.removeprefix(b"\xef\xbb\xbf")
        before = body[: error.start]
        line, column = before.count(b"\n") + 1, len(before.rsplit(b"\n", 1)[-1].decode("utf-8", "replace")) + 1
        offset = error.start + len(raw) - len(body)
        message = f"not UTF-8: byte {body[error.start]:#04x} at offset {offset}, save the file as UTF-8"
        raise Refused(Problem(line, column, "", message)) from None


def _missing(file: Path) -> str:
    other = file.with_suffix(".yaml") if file.suffix == ".yml" else None
    if other is not None and other.is_file():
        return f"there is no such file, but there is a {other.name}: rename it, or name it on the command line"
    return "there is no such file"


def _no_mapping(document: Document) -> Problem:
    if document.data is None:
        return Problem(1, 1, "", "the file is empty, wanted `version: 1` and `train: {run: …}`")
    place = document.values[()]
    return Problem(place.line, place.column, "", f"found {shown(document.data)} at the top level, wanted keys: `version: 1`, `train:` …")


def _spec(path: Path, document: Document) -> Spec:
    data = document.data
    return Spec(
        path=path,
        train=_train(data["train"], document),
        random_state=_random_state(data.get("random-state", {})),
        determinism=_determinism(data.get("determinism", {})),
        capture=_capture(data.get("capture", {})),
        cost=CostBudget(**_named(data.get("cost", {}))),
        data=tuple(_data_item(item) for item in data.get("data", ())),
        env=Env(**_named(data.get("env", {}))),
        hardware=_hardware(data.get("hardware", {})),
        checklist=_checklist(data.get("checklist", {})),
        baseline=BaselineRule(**_named(data.get("baseline", {}))),
        policy=data.get("policy", "head"),
    )


def _named(section: Mapping[str, Any]) -> dict[str, Any]:
    """The section's keys as the dataclass spells them. What is left out keeps the dataclass's default."""
    return {key.replace("-", "_"): value for key, value in section.items()}


def _whole(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    """JSON Schema takes 50.0 for a whole number; the dataclasses hold ints."""
    return {name: int(value) if name in names else value for name, value in fields.items()}


def _train(section: Mapping[str, Any], document: Document) -> Train:
    fields = _whole(_named(section), "steps", "warmup")
    if "timeout" in fields:
        fields["timeout"] = seconds(fields["timeout"])
    fields["env"] = {
        name: value if isinstance(value, str) else document.literals["train", "env", name] for name, value in section.get("env", {}).items()
    }
    return Train(**fields)


def _random_state(section: Mapping[str, Any]) -> RandomState:
    seeds = section.get("seeds", [section["seed"]] if "seed" in section else None)
    return RandomState() if seeds is None else RandomState(seeds=tuple(int(seed) for seed in seeds))


def _determinism(section: Mapping[str, Any]) -> Determinism:
    compare = section.get("compare", "bitwise")
    tolerance = None if isinstance(compare, str) else Tolerance(loss=float(compare["loss"]), weights=float(compare["weights"]))
    allow = tuple(AllowedFlag(**item) for item in section.get("allow", ()))
    return Determinism(tolerance=tolerance, allow=allow, allow_nonfinite=section.get("allow-nonfinite", False))


def _capture(section: Mapping[str, Any]) -> Capture:
    fields = _whole(_named(section), "every")
    return Capture(**{**fields, "artifacts": tuple(section.get("artifacts", ()))})


def _data_item(item: Mapping[str, str]) -> DataItem:
    checksum = item.get("sha256")
    return DataItem(path=item["path"], sha256=None if checksum is None else checksum.lower())


def _hardware(section: Mapping[str, Any]) -> Hardware:
    return Hardware(**_whole(_named(section), "gpus"))


def _checklist(section: Mapping[str, Any]) -> Checklist:
    waivers = tuple(
        Waiver(check=item["check"], reason=item["reason"], until=date.fromisoformat(item["until"]) if "until" in item else None)
        for item in section.get("waive", ())
    )
    return Checklist(**{**section, "waive": waivers})
