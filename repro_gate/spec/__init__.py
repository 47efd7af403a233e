"""The spec room: `repro.yml` in, `Spec` out.

`loader.load_spec` is the way in, `model` the result, `init.draft_spec` writes a first file. Below the loader, `document` reads YAML and
remembers where everything stands, `overrides` lays the command line over it, and `validation` and `sentences` hold it against
`schema.json` and say in words what is wrong. This package file imports nothing, so that `spec.model` costs nothing to import.
"""
