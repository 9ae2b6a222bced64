"""Everything that is to be measured on the GPUs of one host, in one command: `python -m v4model.recipes.one_host`."""
