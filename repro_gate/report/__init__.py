"""What the gate says: the Report (`model`) and its faces, one module each: `json_face`, `terminal`, `markdown`. `checklist` holds the faces
of `repro-gate check`.

The faces render the Report and decide nothing. Text from the training code passes `escape` on its way out. Import a face by its module:
each pulls in what it needs (rich, jinja2, jsonschema), and the command line must start without them.
"""
