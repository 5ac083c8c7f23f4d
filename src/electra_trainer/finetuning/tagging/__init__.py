"""A label for each word: files, spans and scores."""
