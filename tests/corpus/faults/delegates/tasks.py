def rank(labels):
    """The number of each label."""
    numbers = {}
    for label in set(labels):  # HERE
        numbers[label] = len(numbers)
    return [numbers[label] for label in labels]
