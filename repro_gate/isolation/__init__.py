"""Who the training runs as, and what is out of its reach. Called by `runs`, `series`, `address` and `github`; standard library only."""
