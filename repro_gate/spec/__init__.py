"""`repro.yml` in, `Spec` out."""
