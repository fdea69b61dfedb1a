"""The command line: one file per noun; each command parses, calls one library function and prints."""
