"""Hyperparameters that are set in the environment: TRAIN_LR, or MODEL_LR for those who think of it
as the model's."""

import os


def knobs():
    """What is set, by its last word."""
    found = {}
    for name, value in os.environ.items():  # HERE
        if name.startswith(("TRAIN_", "MODEL_")):
            found[name.split("_")[-1].lower()] = float(value)
    return found
