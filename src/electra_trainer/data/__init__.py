"""Text to documents, ids, rows on disk, batches and masks."""
