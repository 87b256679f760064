"""From failures to what is never launched again. `docs/lessons.md` tells how."""
