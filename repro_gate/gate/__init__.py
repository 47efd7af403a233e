"""The gate: a spec goes in, a Report comes out."""
