"""The server: requests over HTTP go in, cited texts, documents and pages come out."""
