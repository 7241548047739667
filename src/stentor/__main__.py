"""`python -m stentor` is the command `stentor`."""

from stentor.cli import main

main()
