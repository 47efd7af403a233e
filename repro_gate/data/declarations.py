"""Declared items that stand for others: `.dvc` files, turned into the items that these declare.

They come from an untrusted checkout: limits on size, depth and count, no path out of the checkout,
every fault a problem with its line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from repro_gate.data.declared import data_path
from repro_gate.data.formats import DataProblem, read_dvc
from repro_gate.files import Unreadable, leads_out, read_text
from repro_gate.spec.errors import Refused, escaped
from repro_gate.spec.loader import checkout_of
from repro_gate.spec.model import DataItem

MAX_DVC = 1 << 20  # bytes
DVC = ".dvc"  # how the names of declaration files end


def expand_items(
    items: Sequence[DataItem], spec_dir: Path, root: Path | None = None
) -> tuple[tuple[DataItem, ...], tuple[DataProblem, ...]]:
    """The items with every `.dvc` file replaced by what it declares, and what is wrong with the
    declarations.

    An item without a digest takes it from the `.dvc` file beside it. `root` is the checkout's; by
    default the nearest folder above the spec that holds `.git`, or the spec's own. Raises
    UsageError for an item whose path is none.
    """
    folder = Path(os.path.abspath(spec_dir))
    top = Path(os.path.abspath(root or checkout_of(folder / "-")))
    if not folder.is_relative_to(top):  # one of them went through a link
        folder, top = Path(os.path.realpath(folder)), Path(os.path.realpath(top))
    found, problems = list[DataItem](), list[DataProblem]()
    for item in items:
        path, name = data_path(item, folder), item.path
        stands_for_others = path.name.endswith(DVC) and path.name != DVC and not path.is_dir()
        if not stands_for_others:
            path, name = path.with_name(path.name + DVC), item.path.rstrip("/") + DVC
        if item.sha256 or item.md5 or not (stands_for_others or path.is_file()):
            found.append(item)
            continue
        try:
            declared = _declared(path, name, top)
        except (Unreadable, Refused) as error:
            line = f":{error.problem.line or 1}" if isinstance(error, Refused) else ""
            remedy = "restore the file, or take it out of the spec"
            remedy = error.remedy or remedy if isinstance(error, Refused) else remedy
            problems.append(DataProblem(f"{escaped(name)}{line}", str(error), remedy))
            declared = []
        own = [one for one in declared if data_path(one, folder) == data_path(item, folder)]
        if stands_for_others:
            found += declared
        else:
            found.append(replace(own[0], path=item.path) if own else item)
    return tuple(found), tuple(problems)


def _declared(path: Path, name: str, top: Path) -> list[DataItem]:
    """What a `.dvc` file declares, relative to the spec, which calls it `name`. Raises Unreadable
    or Refused.

    Messages quote what is wrong with a file, so a link is not followed to a file that is not the
    checkout's; where the spec names one elsewhere, not to what is no `.dvc` file.
    """
    is_inside = path.is_relative_to(top)
    within = top if is_inside else Path("/")
    why = leads_out(path, within)
    if not why and not os.path.realpath(path).endswith(DVC):
        why = "is no `.dvc` file"
    if why:
        raise Unreadable(f"is a link to a file that {why}: it is not read")
    text = read_text(path, within, MAX_DVC)
    above = os.path.dirname(name)
    return [
        replace(item, path=os.path.normpath(os.path.join(above, item.path)))
        for item in read_dvc(text, name, path.parent, top if is_inside else path.parent)
    ]
