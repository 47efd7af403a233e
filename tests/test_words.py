"""Retired words are refused in what people read. `docs/glossary.md` has the words that are used instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Where people read: globs from the top of the repository.
PLACES = (
    "repro_gate/**/*.py",
    "repro_gate/**/*.j2",
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
# Each `~` is taken out: it keeps a search for the old words, and a rename of them, from finding this list.
WORDS = (
    (r"\bg~atings?\b", "Each g~ating proves it.", "Each gate run checks it."),
    (r"\bpa~rted\b|\bpa~rts at\b|\b(?:runs|they|replicas) pa~rt\b", "The two runs pa~rt at step 3.", "The two runs diverge at step 3."),
    (r"\bhe~ld against\b|\bho~ld(?:s|ing)?(?: \w+){0,3} against\b", "It is he~ld\nagainst the file.", "It is compared with the file."),
    (r"\bas~ks?(?: |_|-)less\b|\bwo~rth less\b", "What the change as~ks less of.", "The checks that the change weakens."),
    (r"\bcon~tent(?: |_|-)?address(?:es)?\b", "It prints the con~tent address.", "It prints the config hash."),
    (r"\b(?:recipe|platform)(?: |_|-)lea~ves\b|\blea~ves? (?:move|moves|moved)\b", "27 lea~ves move it.", "It covers 27 inputs."),
    (r"\brepro\.lo~ck\b|\brepro-gate lo~ck\b|\blo~ck\.on-change\b", "Commit repro.lo~ck.", "Commit repro.baseline.yml."),
    (r"\bsame b~its twice\b|\b(?:are|not) the same b~its\b", "The same b~its twice.", "The runs are bitwise identical."),
    (r"\bstra~ngers?\b", "It runs a stra~nger's code.", "It runs untrusted code."),
    (r"\bput to the pro~of\b", "It was not put to the pro~of.", "The self-check did not run."),
    (r"\bca~lled by `", "Ca~lled by `cli`.", "Parses the command line."),
    (r"\bfa~ces\b|\bjson_fa~ce\b|'s fa~ce of\b", "The fa~ces of the report.", "The renderers of the report."),
)
_RETIRED = [re.compile(pattern.replace("~", "").replace(" ", r"[\s#]+"), re.IGNORECASE) for pattern, _, _ in WORDS]
# What these patterns must leave alone.
STILL_GOOD = """Hugging Face is a part of it. It leaves the flag off. uv.lock pins packages; one process holds a file lock.
The function is called by torch. The gated attention holds for one run. Parts of the file differ. Values are compared against the clock."""


def retired(text: str) -> Iterator[tuple[int, str]]:
    """(line, words) of each retired word in a text."""
    for pattern in _RETIRED:
        for found in pattern.finditer(text):
            yield text.count("\n", 0, found.start()) + 1, " ".join(found.group().split())


@pytest.mark.parametrize(("sentence", "plain"), [(sentence.replace("~", ""), plain) for _, sentence, plain in WORDS])
def test_each_retired_word_is_refused_and_its_plain_twin_is_not(sentence: str, plain: str) -> None:
    assert list(retired(sentence)) and next(retired(f"one\n# {sentence.upper()}"))[0] == 2
    assert not list(retired(plain)) and not list(retired(STILL_GOOD))


@pytest.mark.parametrize("place", PLACES)
def test_what_people_read_has_no_retired_word(place: str) -> None:
    files = [path for path in sorted(ROOT.glob(place)) if not {"node_modules", ".venv"} & set(path.parts)]
    assert files, place
    found = [f"{path.relative_to(ROOT)}:{line}: {words}" for path in files for line, words in retired(path.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)
