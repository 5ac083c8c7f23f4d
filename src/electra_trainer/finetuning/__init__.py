"""Tasks on top of an encoder: your own files, GLUE, SQuAD, tagging."""
