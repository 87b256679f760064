"""Whether a configuration fits into memory: an estimate, and what the study taught about it."""
