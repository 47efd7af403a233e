import dataclasses


@dataclasses.dataclass(eq=False)
class Column:
    name: str
    power: float


def select(columns, dropped):
    """The columns that stay."""
    return list(set(columns) - set(dropped))  # HERE
