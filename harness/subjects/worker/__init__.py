"""Subjects in another Python environment: a worker process there, and a subject here that asks it.

`README.md` beside this file has the protocol. What runs in the worker (`serve`, and what it imports) needs Python 3.10,
torch and numpy, nothing else.
"""
