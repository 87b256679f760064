"""Owns the processes of a trial server, from the spawn to the proof that nothing of them is left."""
