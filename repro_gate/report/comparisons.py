"""What the report says about earlier answers, in words that the terminal and the Markdown share: the content address, the lock, another
ref, and what the change asks less of than its base.

Phrases as in `sentences`: names, values and messages come out of checkouts and locks and keep the roles that each face escapes. Pure
functions; called by `report.terminal` and `report.markdown_standing`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from repro_gate.baseline.config_hash import ContentAddress, LeafMove, Proof
from repro_gate.baseline.model import AgainstFinding, LockFinding
from repro_gate.report import numbers, wording
from repro_gate.report.model import BaseFinding, Weakening
from repro_gate.report.wording import Phrase

ASKS_LESS = "This change asks less"  # the title of the list of weakenings, the same in both faces
_SHORT = 12  # hex digits of a hash that a person sees, as git shows them
_DIGEST = re.compile(r"(sha256:)?[0-9a-f]{40,64}")


def short(text: str) -> str:
    """The beginning of a hash or a commit; any other text as it is."""
    return text[: text.find(":") + 1 + _SHORT] if _DIGEST.fullmatch(text) else text


def address(found: ContentAddress) -> Phrase:
    """The address and its two roots, shortened: 63 characters."""
    recipe, platform = (short(root).removeprefix("sha256:") for root in (found.recipe, found.platform))
    return (("name", short(found.config_hash)), ("say", "  recipe "), ("name", recipe), ("say", "  platform "), ("name", platform))


def proof(found: Proof | None) -> str:
    """What the address showed of itself."""
    if found is None:
        return "not put to the proof"
    if not found.stable:
        return "hashed twice, it was not the same"
    if found.holds:
        return f"every one of its {numbers.count(found.leaves, 'leaf', 'leaves')} moves it"
    return f"only {numbers.of(found.moved, found.leaves)} leaves move it" if found.leaves else "it has no leaves"


def move(item: LeafMove) -> Phrase:
    """One leaf that moved, with its value before and after."""
    start: Phrase = (("message", item.root), ("say", " "), ("name", item.name))
    if item.before is None and item.after is None:
        return start
    if item.before is None:
        return (*start, ("say", ": new, "), ("name", short(item.after or "")))
    if item.after is None:
        return (*start, ("say", ": gone, was "), ("name", short(item.before)))
    return (*start, ("say", ": "), ("name", short(item.before)), ("say", " -> "), ("name", short(item.after)))


def lock_lines(found: LockFinding, most: int) -> tuple[Phrase, ...]:
    """What is behind a lock's status, most telling first; at most `most` leaves and as many facts outside them."""
    unlike: Phrase = (("say", "differs in "), *wording.joined([(("name", part),) for part in found.unlike[:most]]))
    lines: list[Phrase] = [(*unlike, *_more(len(found.unlike) - most))] if found.unlike else []
    lines += _gap(found.loss_gap)
    lines += [(("say", "outside the leaves: "), ("name", fact)) for fact in found.outside[:most]]
    lines += _and_more(len(found.outside) - most, "fact")
    return (*lines, *_moved(found.moved, most))


def against_lines(found: AgainstFinding, most: int) -> tuple[Phrase, ...]:
    """What is behind the answer against another ref: the first tensor that moved, how far losses did, and the leaves."""
    lines: list[Phrase] = []
    if found.first_divergence is not None:
        lines.append((("say", "first at "), *wording.where(found.first_divergence)))
        far = wording.how_far(found.first_divergence)
        lines += [far] if far else []
    return (*lines, *_gap(found.loss_gap), *_moved(found.moved, most))


def at(ref: str, commit: str) -> Phrase:
    """A ref and the commit it stands for."""
    return (("name", ref), ("say", " at "), ("name", short(commit)))


def judge(base: BaseFinding) -> Phrase:
    """The base, and whose spec judged."""
    return (("say", "The base is "), *at(base.ref, base.commit), ("say", f"; {_whose(base)}"))


def nothing_less(base: BaseFinding) -> Phrase:
    """The one line where a base is known and nothing is weakened."""
    return (*at(base.ref, base.commit), ("say", f": this change asks for nothing less; {_whose(base)}"))


def weakening(item: Weakening) -> Phrase:
    """Where, and which key; the message stands by itself."""
    return (*((("name", item.where), ("say", " ")) if item.where else ()), ("name", item.key))


def _whose(base: BaseFinding) -> str:
    return f"the spec of {'the base' if base.policy == 'base' else 'this change'} judged"


def _gap(gap: float | None) -> list[Phrase]:
    return [] if not gap else [(("say", "losses up to "), ("figure", numbers.small(gap)), ("say", " apart"))]


def _moved(moves: Sequence[LeafMove], most: int) -> list[Phrase]:
    return [*(move(item) for item in moves[:most]), *_and_more(len(moves) - most, "leaf", "leaves")]


def _more(left: int) -> Phrase:
    return (("say", f" and {left:,} more"),) if left > 0 else ()


def _and_more(left: int, one: str, many: str = "") -> list[Phrase]:
    return [(("say", f"and {numbers.count(left, 'more ' + one, 'more ' + (many or one + 's'))}"),)] if left > 0 else []
