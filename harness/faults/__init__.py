"""The fault zoo: one small module a fault, each re-creating on a subject a defect that really happened."""
