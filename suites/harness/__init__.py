"""The harness tested: its oracles against cases by hand, its verdicts, its witnesses."""
