"""What is counted of a step and how it is timed."""
