"""The parts of the fake vLLM; `tests/fakes/fake_vllm.py` says how it is used."""
