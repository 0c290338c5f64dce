"""One module per family of skills. Each function draws one dialogue (or document) from a random generator and a split."""
