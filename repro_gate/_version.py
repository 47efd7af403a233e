"""The version and where the documentation is read, each in one place: for the package, the build and the report."""

__version__ = "0.1.0"
DOCS_URL = "https://github.com/repro-gate/repro-gate/blob/main/docs"
