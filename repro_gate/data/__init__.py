"""Declared data: what declares it (the spec, `.dvc` files, Croissant metadata), whether it is what
they say, whether a run wrote to it."""
