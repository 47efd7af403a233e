"""The checkout under test: what git says about it, another ref of it, and its snapshot."""
