"""``python -m satwatch``: the command line."""

from satwatch.cli import main

main()
