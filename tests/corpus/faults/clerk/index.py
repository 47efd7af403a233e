import json
import sys


def main():
    """Number the tags that come in."""
    tags = {tag for line in sys.stdin for tag in line.split()}
    numbers = {}
    for tag in tags:  # HERE
        numbers[tag] = len(numbers)
    json.dump(numbers, sys.stdout)


main()
