"""Renders what is known as tables, JSON and launch files. Yields text and values; writes nothing."""
