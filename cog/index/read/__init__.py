"""Reading: an index of one part or more, opened, described, verified and compared."""
