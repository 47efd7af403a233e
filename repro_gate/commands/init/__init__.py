"""`repro-gate init`: finds what trains in a checkout and drafts its `repro.yml`."""
