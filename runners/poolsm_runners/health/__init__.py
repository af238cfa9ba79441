"""Is the runner alive, is it of use, and where does it hang: what probes and people are told."""
