"""What is on disk between the stages: a module writes, reads and checks each format."""
