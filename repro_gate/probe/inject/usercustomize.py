"""Python imports this after `sitecustomize`, outside virtual environments: where the project's own
`sitecustomize` lay before ours on PYTHONPATH, the probe starts here."""

import os

_path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sitecustomize.py")
with open(_path, encoding="utf-8") as _file:
    exec(compile(_file.read(), _path, "exec"))  # noqa: S102  our own
