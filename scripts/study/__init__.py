"""What a study is: its config, suites, attempt records, journal and fingerprints. Imports nothing heavy."""
