"""A basis of a model's logits: from an output matrix or from whole rows."""
