"""Declared data: what declares it (the spec, `.dvc` files), whether it is what they say, whether a
run wrote to it."""
