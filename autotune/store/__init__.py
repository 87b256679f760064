"""The evidence, in SQL: what was launched, what happened, what was measured."""
