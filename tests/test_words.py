"""Retired words are refused in what people read. `docs/glossary.md` has the words that are used instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Where people read: globs from the top of the repository.
PLACES = (
    "*.md",
    "docs/**/*.md",
    "examples/**/*.md",
    "examples/**/*.py",
    "examples/**/*.yml",
    "action.yml",
    "*/action.yml",
    ".github/**/*.yml",
    "Makefile",
    "pyproject.toml",
)
# Retired: a pattern, a sentence that has it, and the same in the words of today. A space stands for any white space, a new line too.
WORDS = (
    (r"\bgatings?\b", "Each gating proves it.", "Each gate run checks it."),
    (r"\bparted\b|\bparts at\b|\b(?:runs|they|replicas) part\b", "The two runs part at step 3.", "The two runs diverge at step 3."),
    (
        r"\bheld against\b|\bhold(?:s|ing)?(?: \w+){0,3} against\b",
        "The digest is held\nagainst the file.",
        "The digest is compared with the file.",
    ),
    (r"\basks?(?: |_|-)less\b|\bworth less\b", "What the change asks less of.", "The checks that the change weakens."),
    (r"\bcontent(?: |_|-)?address(?:es)?\b", "It prints the content address.", "It prints the config hash."),
    (
        r"\b(?:recipe|platform)(?: |_|-)leaves\b|\bleaves? (?:moves?|moved|of the (?:address|hash))\b",
        "27 leaves move it.",
        "It covers 27 inputs.",
    ),
    (r"\brepro\.lock\b|\brepro-gate lock\b|\block\.on-change\b", "Commit repro.lock.", "Commit repro.baseline.yml."),
    (r"\bsame bits twice\b|\b(?:are|not) the same bits\b", "The same bits twice.", "The runs are bitwise identical."),
    (r"\bstrangers?\b", "It runs a stranger's code.", "It runs untrusted code."),
    (r"\bput to the proof\b", "It was not put to the proof.", "The self-check did not run."),
    (r"\bcalled by `", "Called by `cli`.", "Parses the command line."),
    (r"\bfaces\b|\bjson_face\b|'s face of\b", "The faces of the report.", "The renderers of the report."),
)
_RETIRED = [re.compile(pattern.replace(" ", r"[\s#]+"), re.IGNORECASE) for pattern, _, _ in WORDS]
# What these patterns must leave alone.
STILL_GOOD = """Hugging Face is a part of it. It leaves the flag off. uv.lock pins packages; one process holds a file lock.
The function is called by torch. The gated attention holds for one run. Parts of the file differ. Values are compared against the clock."""


def retired(text: str) -> Iterator[tuple[int, str]]:
    """(line, words) of each retired word in a text."""
    for pattern in _RETIRED:
        for found in pattern.finditer(text):
            yield text.count("\n", 0, found.start()) + 1, " ".join(found.group().split())


@pytest.mark.parametrize(("sentence", "plain"), [(sentence, plain) for _, sentence, plain in WORDS])
def test_each_retired_word_is_refused_and_its_plain_twin_is_not(sentence: str, plain: str) -> None:
    assert list(retired(sentence)) and next(retired(f"one\n# {sentence.upper()}"))[0] == 2
    assert not list(retired(plain)) and not list(retired(STILL_GOOD))


@pytest.mark.parametrize("place", PLACES)
def test_what_people_read_has_no_retired_word(place: str) -> None:
    files = [path for path in sorted(ROOT.glob(place)) if not {"node_modules", ".venv"} & set(path.parts)]
    assert files, place
    found = [f"{path.relative_to(ROOT)}:{line}: {words}" for path in files for line, words in retired(path.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)
