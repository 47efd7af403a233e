"""Prints the vocabulary of a file of reviews as JSON: word and number."""

import json
import sys

with open(sys.argv[1]) as file:
    texts = [text for text, _ in json.load(file)]
words = {word for text in texts for word in text.split()}
print(json.dumps({word: number for number, word in enumerate(words)}))  # HERE
