"""What a diagnosis says, in words that all renderers share: the cause, its line, the proof, what was ruled out and what to do."""

from __future__ import annotations

from repro_gate._version import DOCS_URL
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.escape import and_more
from repro_gate.factors import BY_NAME
from repro_gate.report import numbers
from repro_gate.report.wording import Phrase

_PROOF = "confirmed: "  # begins the line of the evidence that proves a cause
_ALSO, _LINES = 3, 10  # further causes, and lines of a list, that are shown; the JSON report has all


def place(found: Diagnosis) -> str:
    """The cause's line, `src/train.py:41`; empty where none is known."""
    return f"{found.file}:{found.line}" if found.file else ""


def why(found: Diagnosis) -> tuple[Phrase, ...]:
    """What a diagnosis says, a sentence each: the cause, what it takes besides, and the proof. A cause without one is called likely."""
    likely: Phrase = () if found.confirmed or found.cause == "unknown" else (("figure", "Likely"), ("say", ", not proven: "))
    sentences = [(*likely, *_cause(found))]
    sentences += [(("figure", "Together with"), ("say", ": "), *_cause(item)) for item in found.also[:_ALSO]]
    if left := and_more(len(found.also) - _ALSO, "causes"):
        sentences.append((("say", left),))
    if found.confirmed:
        proof = _proof(found)
        said: Phrase = (("say", ": "), ("message", proof.removeprefix(_PROOF))) if proof else ()
        sentences.append((("figure", "Confirmed"), *said))
    if found.cause == "unknown" and found.ruled_out:
        sentences.append((("figure", "Ruled out"), ("say", ": "), ("message", "; ".join(found.ruled_out[:_LINES]))))
    if found.rate is not None:
        sentences.append((("say", f"It shows in {numbers.of(found.rate.diverged, found.rate.pairs)} pairs of runs"),))
    return tuple(sentences)


def _proof(found: Diagnosis) -> str:
    """The line of the evidence that proves the cause: the one that says so, else the last."""
    proofs = (line for line in found.evidence if line.startswith(_PROOF))
    return next(proofs, found.evidence[-1] if found.evidence else "") if found.confirmed else ""


def _cause(found: Diagnosis) -> Phrase:
    """`CALL in FILE:LINE drew from the operating system (unseeded-rng)`."""
    factor = BY_NAME.get(found.factor or "")
    name: Phrase = () if found.cause == "unknown" else (("say", f" ({found.cause})"),)
    if factor is None or factor.cause != found.cause or not (found.call or found.file):
        return (("message", found.message), *name)
    at: Phrase = (("say", " in "), ("name", place(found))) if found.file else ()
    return (("name", found.call) if found.call else ("say", "the training"), *at, ("say", f" {factor.did}"), *name)


def page_of(found: Diagnosis) -> str:
    """The address of the cause's page."""
    return f"{DOCS_URL}/causes/{found.cause}.md"


def remedy_of(found: Diagnosis) -> str:
    """What to do about the cause, and where more stands."""
    return f"{found.remedy or 'the page says what to try next'} ({page_of(found)})"


def background(found: Diagnosis) -> tuple[Phrase, ...]:
    """What was seen and ruled out on the way to a cause, and what it took; the proof is told by `why`."""
    told = _proof(found)
    lines: list[Phrase] = [(("message", line),) for item in (found, *found.also[:_ALSO]) for line in item.evidence[:_LINES] if line != told]
    if found.cause != "unknown":  # else it is said already
        lines += [(("say", "ruled out: "), ("message", line)) for line in found.ruled_out[:_LINES]]
    return (*lines, (("say", f"{numbers.count(found.runs, 'run')} in {numbers.duration(found.seconds)}"),))
