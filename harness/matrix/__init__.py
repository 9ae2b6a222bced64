"""The kill matrix: which property catches which fault, and that none cries wolf over what is right."""
