"""Prints a row of sixteen buckets for each word."""

import json
import sys


def row(word):
    """Which buckets the trigrams of a word fall into."""
    buckets = [0.0] * 16
    for start in range(len(word) - 1):
        buckets[hash(word[start : start + 3]) % 16] += 1.0  # HERE
    return buckets


print(json.dumps([row(word) for word in sys.argv[1:]]))
