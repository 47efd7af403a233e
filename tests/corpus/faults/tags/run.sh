#!/bin/sh
# Prepares the labels with nothing of the shell's environment, then trains.
set -e
env -i PATH="$PATH" HOME="$HOME" python labels.py tags.txt > labels.csv
exec python train.py --seed "$1"
