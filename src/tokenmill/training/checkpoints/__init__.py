"""Where a run continues from: its checkpoints, how they are written, found and mirrored."""
