"""The version, in one place: read by the package, the build and the report."""

__version__ = "0.1.0"
