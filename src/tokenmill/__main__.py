"""Run the command line: `python -m tokenmill`."""

from tokenmill.cli.main import main

main()
