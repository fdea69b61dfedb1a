"""Raw text and documents: cards go in, documents and held-out prompts come out."""
