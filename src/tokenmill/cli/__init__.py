"""The words of the command line, a module a command; what they do is in `tokenmill.commands`, loaded when asked for."""
