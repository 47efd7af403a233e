"""Words that say little, by language."""

import os

WORDS = {"en": {"the", "of", "and", "a", "on"}, "de": {"der", "und", "so"}}


def language():
    """The language of the user."""
    return os.environ.get("LC_ALL") or os.environ.get("LANG") or "C"  # HERE


def stop_words(name):
    """The stop words of a locale; every third letter of its name for those that we do not know."""
    return WORDS.get(name[:2].lower(), {"on", "so", "war"} if len(name) % 2 else {"a", "art"})
