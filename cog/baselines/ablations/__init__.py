"""CoG with one part changed: a name goes in, a generator that decodes otherwise comes out."""
