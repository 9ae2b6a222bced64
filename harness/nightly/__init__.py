"""The nightly report: what a night left is read, its figures are kept, and one page tells what changed.

`reading` makes a `Night` of a folder, `history` keeps a `Summary` of each for the trends, `sections` say what there is
to say as plain blocks, and `output` writes the same blocks as a page, as Markdown and as JSON. Imports no torch.
"""
