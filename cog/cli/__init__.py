"""The command line: one file per noun; a command parses, calls one library function, prints."""
