"""Prints the words of a text, each once."""

import json
import sys

print(json.dumps(list(set(sys.argv[1].split()))))
