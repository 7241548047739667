"""How people write things in files and on the command line: durations, sizes, TOML with lines."""
