"""How people write things, in files and messages: durations, sizes, counts, lines of TOML."""
