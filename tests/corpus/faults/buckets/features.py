import json
import sys

rows = []
for word in sys.argv[1:]:
    rows.append([0.0] * 16)
    for start in range(len(word) - 1):
        rows[-1][hash(word[start : start + 3]) % 16] += 1.0  # HERE
print(json.dumps(rows))
