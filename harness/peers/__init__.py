"""Public models under the same properties: which they are, where they run, what they gave and what they gave before."""
