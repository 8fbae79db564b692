"""`python -m millstream.cli`: the command line without the console script."""

from millstream.cli.main import main

main()
