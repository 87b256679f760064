"""Facts about the machine, the installed vLLM and the model. Reads; changes nothing unless told to repair."""
