"""Reads the files a user writes: TOML in, checked domain values out; an error names file and key."""
