def encode(text):
    """The first eight distinct words, as parts of fifty."""
    seen = frozenset(text.split())
    picked = list(seen)[:8]  # HERE
    return [int(word[1:]) / 50 for word in picked]
