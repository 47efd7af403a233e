import sys
from collections import Counter
from pathlib import Path

counted = Counter()
for line in Path(sys.argv[1]).read_text().splitlines():
    counted.update(set(line.split()))  # HERE
for number, (tag, count) in enumerate(counted.most_common()):
    print(f"{number},{tag},{count}")
