"""Steps on several GPUs against the same steps on one: `python -m harness.subjects.gpus --gpus 8`."""
