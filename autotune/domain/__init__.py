"""What things are: frozen values and the rules that belong to them. No input, no output, no clock."""
