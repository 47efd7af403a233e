import os

WORDS = {"en": {"the", "of", "and", "a", "on"}, "de": {"der", "und", "so"}}


def language():
    return os.environ.get("LC_ALL") or os.environ.get("LANG") or "C"  # HERE


def stop_words(name):
    return WORDS.get(name[:2].lower(), {"on", "so", "war"} if len(name) % 2 else {"a", "art"})
