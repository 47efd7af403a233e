"""Prints the words of a text, each once."""

import json
import sys

print(json.dumps(sorted(set(sys.argv[1].split()))))
