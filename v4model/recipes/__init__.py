"""Recipes: training runs as scripts. One base, and others that hand it other defaults and nothing else."""
