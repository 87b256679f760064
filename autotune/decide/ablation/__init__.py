"""What each setting of a configuration is worth, and which of them it can do without."""
