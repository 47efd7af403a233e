ENABLED = set()


def enable(amount):
    """Add a transform that bends by an amount."""

    def bend(x):
        return x + amount * x.roll(1, 1).sin()

    ENABLED.add(bend)


for number in range(300):
    enable(number / 300)


def augment(x):
    for transform in ENABLED:  # HERE
        x = transform(x).clamp(-3, 3)
    return x
