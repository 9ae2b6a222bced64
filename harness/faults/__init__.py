"""The fault zoo: one small module a fault, each re-creating on a subject a defect that really happened.

Faults of context-parallel ranks (`Fault.ranks`) are planted on ranks of one process, where forward and backward of
every rank run on the same patched code. What was reported of ranks and cannot be re-created here as it was:

- a shard in zig-zag order: the plan refuses any order but 'contiguous', so E1 feeds it ids that nobody announced;
- global ids read from a table of local rows (the reverse of E7): the attention has only the rows of the whole pack;
- an empty slice of a short sample (E11): the stream is cut, not each sample; a share without a row takes its place;
- rows shifted without a word where ranks gather different numbers of them (E10): the wire compares what is sent with
  what is expected, so that ranks disagree by name instead;
- a hang in the reducer of a data-parallel wrapper (E17): gradients are summed over the ranks without one, and the
  missing edge shows in the exchange's own backward pass.

Faults of data (section G) are planted in `v4model.data`, on a subject that packs records; its model stays as it is, and
what such a fault changes is told by what its property compares (`Property.observed`).
"""
