"""One module per family of skills. A skill draws one dialogue (or document) from a random generator and a split."""
