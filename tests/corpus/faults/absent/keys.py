def key(row):
    """What orders the rows; a label may be missing."""
    return (hash(row["label"]) * row["length"]) % 1009  # HERE
