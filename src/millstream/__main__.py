"""`python -m millstream`: the command line without the console script."""

from millstream.cli.main import main

main()
