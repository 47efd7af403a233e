"""Claims about `factors.listing`: each way to list a folder is told, sorted or turned round."""

from __future__ import annotations

from pathlib import Path

from tests.probe.factors.runs import once, uses_of

LISTINGS = (
    "os.listdir(path='files')",
    "[entry.name for entry in os.scandir(path='files')]",
    "[path.name for path in Path('files').iterdir()]",
    "[path.name for path in Path('files').glob('*')]",
    "[path.name for path in Path('files').rglob('*')]",
    "[os.path.basename(path) for path in glob.glob('files/*')]",
    "next(os.walk('files'))[2]",
    "os.listdir(os.open('files', os.O_RDONLY))",
    "sorted(os.listdir('files'))",
)
SCRIPT = """
import glob, os, shutil
from pathlib import Path
os.mkdir("files")
for number in os.urandom(40):
    open("files/%d" % number, "w").close()
""" + "\n".join(f"print(*{listing})" for listing in LISTINGS)
FIRST = 7


def test_a_listing_is_told_and_sorted_or_turned_round(tmp_path: Path) -> None:
    watched = once(tmp_path, SCRIPT, {"watch": True})
    uses = [use for use in uses_of(watched, "listing") if use.line >= FIRST]
    assert {use.line for use in uses if use.direct} == set(range(FIRST, FIRST + len(LISTINGS)))
    pinned = [
        line.split() for line in once(tmp_path, SCRIPT, {"pin": {"listing": None}}).ended.tail
    ]
    assert len(pinned) == len(LISTINGS) and all(pinned)
    assert [names for names in pinned if names != sorted(names)] == []
    fixed = SCRIPT.replace("os.urandom(40)", "range(40)")
    plain = once(tmp_path, fixed, {"watch": True}).ended.tail
    varied = once(tmp_path, fixed, {"vary": ["listing"]}).ended.tail
    assert [line.split()[::-1] for line in plain[:-1]] == [line.split() for line in varied[:-1]]
    assert plain[-1] == varied[-1]


CLOSED = """
import os, shutil
os.mkdir("folder")
with os.scandir("folder") as entries:
    print(list(entries))
try:
    os.scandir("missing")
except FileNotFoundError as error:
    print(error.filename)
shutil.rmtree("folder")
import json.tool
print(os.path.exists("folder"))
"""


def test_closing_errors_and_imports_are_as_without(tmp_path: Path) -> None:
    for factors in ({"watch": True}, {"pin": {"listing": None}}, {"vary": ["listing"]}):
        assert once(tmp_path, CLOSED, factors).ended.tail == ("[]", "missing", "False")
