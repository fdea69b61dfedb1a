"""Tables: rows in LanceDB, their digest and vectors in few bits, and what is counted of them."""
