"""Runs: `conditions` says under which flags, `environment` what passes in, `process` starts, watches and ends, `launch` does one run."""
