"""The catalog's file: what is written is read again, what is hostile is refused in one line, and a
platform finds its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from repro_gate._version import SCHEMAS_URL
from repro_gate.errors import UsageError
from repro_gate.ops import catalog as file
from repro_gate.ops.catalog import cached_path, platform_of, read, text
from repro_gate.ops.worker import bits
from tests.support.operators import DIFFERS, PLATFORM, RAISES, catalog, price, row
from tests.support.schemas import path_of, schema_text

KERNEL = "aten.index_put_.default"
WHOLE = catalog(
    row("kernel/index_put_", DIFFERS, kernel=KERNEL, price=price(2.5, 2.0, 3.1)),
    row("kernel/index_put_", DIFFERS, dtype="float64", kernel=KERNEL, direction="backward"),
    row("kernel/put_", on=RAISES, kernel="aten.put_.default"),
    row("kernel/weird"),
)
WHOLE_TEXT = text(WHOLE)


def written(folder: Path, document: str | bytes) -> Path:
    path = folder / "ops.json"
    path.write_bytes(document if isinstance(document, bytes) else document.encode())
    return path


def test_what_is_written_is_read_again_and_follows_the_published_schema(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "ops.json"
    file.write(path, WHOLE)
    assert read(path) == WHOLE and path.stat().st_mode & 0o777 == 0o600
    assert WHOLE_TEXT.isascii() and WHOLE_TEXT.count('\n  {"case": "kernel') == len(WHOLE.rows)
    schema, document = json.loads(schema_text("ops")), json.loads(WHOLE_TEXT)
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(document)
    assert path_of("ops").read_text() == schema_text("ops"), "python -m tests.support.schemas"
    assert schema["$id"] == f"{SCHEMAS_URL}/ops/schema.json"
    # fields of a later version are let through, and the largest distance that is measured
    document["later"] = document["rows"][0]["later"] = {"x": [1]}
    assert read(written(tmp_path, json.dumps(document))) == WHOLE
    far = catalog(row("kernel/far", msgspec.structs.replace(DIFFERS, max_ulp=bits._MOST_ULP)))
    assert read(written(tmp_path, text(far))) == far


def changed(**change: Any) -> str:
    return json.dumps({**json.loads(WHOLE_TEXT), **change})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (changed(schema="repro-gate/report/v1"), "$.schema"),
        (changed(rows=json.loads(WHOLE_TEXT)["rows"][-1:] * (file.MAX_ROWS + 1)), "$.rows"),
        (changed(seconds="\x1b[31m"), "$.seconds"),
        ('{"later":' + "[" * 50_000 + "]" * 50_000 + "}", ""),
        (WHOLE_TEXT.replace('"runs": 9', f'"runs": {10**400}'), ""),
        (b'{"schema": "\xff\xfe"}', ""),
    ],
    ids=lambda value: "" if len(value) > 9 else value,
)
def test_what_is_no_catalog_is_refused_in_one_line(
    tmp_path: Path, content: str | bytes, said: str
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(UsageError, match="not a catalog of operators") as refused:
        read(path)
    message = refused.value.message
    assert message.startswith(str(path)) and said in message
    assert message.isprintable() and len(message) < 600


def test_none_and_a_large_one_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "MAX_BYTES", len(WHOLE_TEXT))
    assert read(written(tmp_path, WHOLE_TEXT)) == WHOLE
    with pytest.raises(UsageError, match="larger than"):
        read(written(tmp_path, f"{WHOLE_TEXT} "))
    with pytest.raises(UsageError, match="is not there"):
        read(tmp_path / "missing")


def test_a_platform_finds_its_own_catalog_and_no_other(tmp_path: Path) -> None:
    def path(**other: Any) -> Path | None:
        platform = msgspec.structs.replace(PLATFORM, **other)
        return cached_path({"XDG_CACHE_HOME": str(tmp_path)}, platform)

    here = path()
    assert here is not None and here.parent == tmp_path / "repro-gate" / "ops"
    assert path(python="3.13", system="another") == here and cached_path({}, PLATFORM) is None
    other = {"torch": "2.4", "device_name": "B", "threads": 4, "isa": "AVX2", "device": "cuda"}
    for name, value in other.items():
        assert path(**{name: value}) != here, name
    assert path(device="cuda") == path(device="cuda", threads=64), "they decide no bits of a GPU"
    hostile = path(torch="../../x\0", device_name="\udcff/etc")
    assert hostile is not None and hostile.parent == here.parent and hostile.name.isascii()


def test_the_platform_is_the_same_from_a_trace_and_from_the_machine() -> None:
    facts = {"torch": "2.13.0+cpu", "python": "3.11.7", "device": "cpu: AVX512", "threads": "2"}
    facts |= {"cpu-isa": "AVX512", "cuda": "none", "cudnn": "none"}
    assert platform_of(facts, {"cpu-model": "A CPU", "os": "Linux", "driver": "535"}) == PLATFORM
    gpu = {**facts, "device": "cuda: H200", "gpu-model": "H200", "cuda": "12.8", "cudnn": "91002"}
    found = platform_of(gpu, {"cpu-model": "A CPU", "driver": "570.1"})
    names = (found.device, found.device_name, found.driver, found.cuda, found.cudnn)
    assert names == ("cuda", "H200", "570.1", "12.8", "91002")
