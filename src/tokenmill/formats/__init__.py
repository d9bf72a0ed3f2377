"""What is on disk between the stages, each format in a module: how it is written, read and checked."""
