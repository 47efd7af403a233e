"""Pictures as lists of rows."""


def picture(number):
    """A square with a pattern; later ones are larger and take longer."""
    size = 32 + 8 * (number % 5)
    return [
        [(row * column * (number + 3)) % 251 / 251 for column in range(size)] for row in range(size)
    ]


def shrink(rows):
    """The means of a grid of four by four."""
    step = len(rows) // 4
    cells = []
    for top in range(0, 4 * step, step):
        for left in range(0, 4 * step, step):
            cell = [rows[top + down][left + right] for down in range(step) for right in range(step)]
            cells.append(sum(cell) / len(cell))
    return cells
