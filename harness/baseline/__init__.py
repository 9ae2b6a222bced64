"""What main gave, and what a run gives now: nothing goes red, silent or missing unseen.

`reading` makes a `Run` of files of any writer, `store` keeps one as text, `diff.compare` gives each test exactly one
class and says first whether the run can be judged at all, `record` makes a run the baseline, `output` tells it. Imports
no torch.
"""
