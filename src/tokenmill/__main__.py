"""`python -m tokenmill`."""

from tokenmill.cli import main

main()
