"""Who the training runs as, what it cannot reach, and the self-test that shows it."""
