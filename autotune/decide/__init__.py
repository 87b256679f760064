"""What to conclude: pure functions over domain values. No input, no output, no clock."""
