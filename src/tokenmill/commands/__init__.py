"""What the subcommands of `tokenmill` print. No stage imports them."""
