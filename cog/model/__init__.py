"""The fixed trained model: token ids and texts go in, tensors come out."""
