"""The loop: proposes, launches, measures, stops, tells. Knows the other adapters by their protocols only."""
