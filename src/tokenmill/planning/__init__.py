"""What training would take: time, memory, money; presets; and what limits a step."""
