#!/bin/sh
# Prints three numbers for the file of a number.
seq 1 "$1" | awk -v n="$1" '{ total += $1 } END { print n / 60, total / 1830, (n % 7) / 7 }'
