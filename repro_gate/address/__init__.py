"""The content address: leaves to recipe and platform roots to one `config_hash`."""
