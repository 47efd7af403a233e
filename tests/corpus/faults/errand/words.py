import json
import sys

print(json.dumps(list(set(sys.argv[1].split()))))
