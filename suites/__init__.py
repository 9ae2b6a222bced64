"""Every test of the repository; folders mirror the code they check."""
