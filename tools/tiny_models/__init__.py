"""Small models with random weights, one for each thing that can go wrong or be tuned in vLLM."""
