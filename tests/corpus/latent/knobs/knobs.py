import os


def knobs():
    found = {}
    for name, value in os.environ.items():  # HERE
        if name.startswith(("TRAIN_", "MODEL_")):
            found[name.split("_")[-1].lower()] = float(value)
    return found
