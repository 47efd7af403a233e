"""Retired words are refused in what people read. `docs/glossary.md` has the words that are used
instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Where people read: globs from the top of the repository.
PLACES = ("repro_gate/**/*.py", "repro_gate/**/*.j2", "*.md", "docs/**/*.md", "examples/**/*.md")
PLACES += ("examples/**/*.py", "examples/**/*.yml", "action.yml", "*/action.yml")
PLACES += (".github/**/*.yml", "Makefile", "pyproject.toml")
# Retired: a pattern, and what to write instead. A space stands for any white space, a new line too.
# Each `~` is taken out: it keeps a search for the old words, and a rename of them, from finding
# this list.
WORDS = {
    r"\bg~atings?\b": "gate run",
    r"\bpa~rted\b|\bpa~rts at\b|\b(?:runs|they|replicas) pa~rt\b": "diverge",
    r"\bhe~ld against\b|\bho~ld(?:s|ing)?(?: \w+){0,3} against\b": "compare with",
    r"\bas~ks?(?: |_|-)less\b|\bwo~rth less\b": "checks that the change weakens",
    r"\bcon~tent(?: |_|-)?address(?:es)?\b": "config hash",
    r"\b(?:recipe|platform)(?: |_|-)lea~ves\b|\blea~ves? (?:move|moves|moved)\b": "inputs",
    r"\brepro\.lo~ck\b|\brepro-gate lo~ck\b|\blo~ck\.on-change\b": "repro.baseline.yml",
    r"\bsame b~its twice\b|\b(?:are|not) the same b~its\b": "bitwise identical",
    r"\bstra~ngers?\b": "untrusted code",
    r"\bput to the pro~of\b": "self-check",
    r"\bca~lled by `": "what the module does",
    r"\bfa~ces\b|\bjson_fa~ce\b|'s fa~ce of\b": "renderers",
}
# what each of the patterns is there to find, in their order
SAMPLES = [
    "two g~atings",
    "the runs pa~rt here",
    "he~ld against the first",
    "as~ks less",
    "a con~tent address",
    "recipe lea~ves",
    "repro.lo~ck",
    "not the same b~its",
    "a stra~nger",
    "put to the pro~of",
    "ca~lled by `main`",
    "three fa~ces",
]


def prepared(pattern: str) -> str:
    return pattern.replace("~", "").replace(" ", r"[\s#]+")


_RETIRED = re.compile("|".join(map(prepared, WORDS)), re.IGNORECASE)


@pytest.mark.parametrize(("pattern", "sample"), [*zip(WORDS, SAMPLES, strict=True)])
def test_each_pattern_finds_its_word_on_two_lines_too(pattern: str, sample: str) -> None:
    for text in (sample, sample.replace(" ", "\n# ")):
        found = _RETIRED.search(text.replace("~", ""))
        assert found and re.search(prepared(pattern), found.group(), re.IGNORECASE)


@pytest.mark.parametrize("place", PLACES)
def test_what_people_read_has_no_retired_word(place: str) -> None:
    files = [
        path for path in sorted(ROOT.glob(place)) if not {"node_modules", ".venv"} & set(path.parts)
    ]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    found = [
        (path, text.count("\n", 0, at.start()) + 1, at.group())
        for path, text in texts.items()
        for at in _RETIRED.finditer(text)
    ]
    assert files and not found, "\n".join(
        f"{path.relative_to(ROOT)}:{line}: {words!r}" for path, line, words in found
    )
