"""Claims about `probe.patch`: what is noted of an item lives no longer than the item."""

from __future__ import annotations

import weakref

from repro_gate.probe.patch import WeakByIdentity


class Item:
    pass


def test_a_note_goes_with_its_item() -> None:
    known, kept, gone, note, other = WeakByIdentity(), Item(), Item(), Item(), Item()
    known.add(kept, "kept")
    known.add(gone, note)
    reference = weakref.ref(note)
    assert known.get(gone) is note and list(known) == [kept, gone]
    del gone, note
    known.add(other, "other")
    assert reference() is None and known.get(kept) == "kept"
    known.discard(kept)
    assert known.get(kept) is None and list(known) == [other]
