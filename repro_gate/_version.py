"""The version, and where the documentation and the schemas are read, each in one place: for the
package, the build and the report."""

__version__ = "1.0.0"
DOCS_URL = "https://github.com/repro-gate/repro-gate/blob/main/docs"
ISSUES_URL = "https://github.com/repro-gate/repro-gate/issues"
# `v1` follows the releases; + /spec/schema.json
SCHEMAS_URL = "https://raw.githubusercontent.com/repro-gate/repro-gate/v1/repro_gate"
