"""What a diagnosis says, in words that all renderers share: the cause, its line, the proof, what
was ruled out and what to do."""

from __future__ import annotations

from repro_gate._version import DOCS_URL
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.escape import and_more
from repro_gate.factors import BY_NAME, HANDED_OVER
from repro_gate.report import numbers
from repro_gate.report.wording import Part, Phrase
from repro_gate.trace import notebook

# further causes, and lines of a list, that are shown; the JSON report has all
_ALSO, _LINES = (
    3,
    10,
)


def place(found: Diagnosis) -> str:
    """The cause's line, `src/train.py:41`; empty where none is known."""
    return notebook.place(found.file, found.line) if found.file else ""


def why(found: Diagnosis) -> tuple[Phrase, ...]:
    """What a diagnosis says, a sentence each: the cause, what it takes besides, and the proof. A
    cause without one is called likely; where it may be another line as well, they are all named."""
    sentences = [(*_likely(found), *_cause(found)), *_one_of(found)]
    for item in found.also[:_ALSO]:
        sentences += [
            (("figure", "Together with"), ("say", ": "), *_likely(item), *_cause(item)),
            *_one_of(item),
        ]
    if left := and_more(len(found.also) - _ALSO, "causes"):
        sentences.append((("say", left),))
    proof = _proof(found)
    word = _standing(found)
    said: Phrase = (
        (("say", ": "), ("message", proof.removeprefix(f"{word.lower()}: "))) if proof else ()
    )
    if found.confirmed or proof:
        sentences.append((("figure", word), *said))
    if found.cause == "unknown" and found.ruled_out:
        sentences.append(
            (
                ("figure", "Ruled out"),
                ("say", ": "),
                ("message", "; ".join(found.ruled_out[:_LINES])),
            )
        )
    if found.rate is not None:
        sentences.append(
            (
                (
                    "say",
                    (
                        f"It shows in {numbers.of(found.rate.diverged, found.rate.pairs)} pairs of "
                        "runs"
                    ),
                ),
            )
        )
    return tuple(sentences)


def _likely(found: Diagnosis) -> Phrase:
    return (
        ()
        if found.confirmed or found.observed or found.cause == "unknown"
        else (("figure", "Likely"), ("say", ", not proven: "))
    )


def _one_of(found: Diagnosis) -> tuple[Phrase, ...]:
    """The lines of which one or several decide, in a sentence; none where the cause stands
    alone."""
    if not found.one_of:
        return ()
    names: list[Part] = []
    for item in found.one_of[:_LINES]:
        at: Phrase = (
            (("name", notebook.place(item.file, item.line)), ("say", " ")) if item.file else ()
        )
        call: Phrase = (
            (("name", item.call), ("say", f" ({item.factor})"))
            if item.call
            else (("say", item.factor),)
        )
        names += [("say", ", " if names else ""), *at, *call]
    left = and_more(len(found.one_of) - _LINES)
    what = "lines" if all(item.file for item in found.one_of) else "things"
    count: Phrase = (
        ("figure", f"One of these {len(found.one_of)} {what}"),
        ("say", ", or several of them, likeliest first: "),
    )
    return ((*count, *names, ("say", f" {left}" if left else "")),)


def _standing(found: Diagnosis) -> str:
    """How far a cause is known: the word that begins the line of the evidence that speaks for
    it."""
    return "Confirmed" if found.confirmed else "Observed" if found.observed else "Seen"


def _proof(found: Diagnosis) -> str:
    """The line of the evidence that proves the cause: the one that says so, else the last; of a
    cause that is not proven, the one that speaks for it, if any."""
    proofs = (line for line in found.evidence if line.startswith(f"{_standing(found).lower()}: "))
    return next(proofs, found.evidence[-1] if found.evidence and found.confirmed else "")


def _cause(found: Diagnosis) -> Phrase:
    """`CALL in FILE:LINE drew from the operating system (unseeded-rng)`."""
    factor = BY_NAME.get(found.factor or "")
    name: Phrase = () if found.cause == "unknown" else (("say", f" ({found.cause})"),)
    if factor is None or factor.cause != found.cause or not (found.call or found.file):
        return (("message", found.message), *name)
    at: Phrase = (("say", " in "), ("name", place(found))) if found.file else ()
    did = HANDED_OVER if found.message.endswith(HANDED_OVER) else factor.did
    return (
        ("name", found.call) if found.call else ("say", "the training"),
        *at,
        ("say", f" {did}"),
        *name,
    )


def page_of(found: Diagnosis) -> str:
    """The address of the cause's page."""
    return f"{DOCS_URL}/causes/{found.cause}.md"


def remedy_of(found: Diagnosis) -> str:
    """What to do about the cause, and where more stands."""
    return f"{found.remedy or 'the page says what to try next'} ({page_of(found)})"


def background(found: Diagnosis) -> tuple[Phrase, ...]:
    """What was seen and ruled out on the way to a cause, and what it took; the proof is told by
    `why`."""
    told = _proof(found)
    lines: list[Phrase] = [
        (("message", line),)
        for item in (found, *found.also[:_ALSO])
        for line in item.evidence[:_LINES]
        if line != told
    ]
    if found.cause != "unknown":  # else it is said already
        lines += [(("say", "ruled out: "), ("message", line)) for line in found.ruled_out[:_LINES]]
    return (
        *lines,
        (("say", f"{numbers.count(found.runs, 'run')} in {numbers.duration(found.seconds)}"),),
    )
