"""The sandbox of a training, as data: the user that it runs as. Made by `selection`, taken by
whatever starts a process of the training."""

from __future__ import annotations

from dataclasses import dataclass

SAME_USER = "same-user"
OWN_USER = "own-user"
UID = GID = (
    # in the range that systemd leaves for users without a name (61184 … 65519), below what a
    # remapped Docker maps
    64180
)


@dataclass(frozen=True)
class Sandbox:
    """Who the training runs as. `level` stands in the report; `notes` say what is weaker than it
    could be, one sentence each."""

    level: str = SAME_USER
    uid: int | None = None
    gid: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def own_user(self) -> bool:
        """Whether training is another user than the gate."""
        return self.level == OWN_USER
