"""The formats of the files between the stages. For each one a module writes, reads and checks
it."""
