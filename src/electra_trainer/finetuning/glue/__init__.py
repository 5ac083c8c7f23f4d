"""GLUE: its tasks, files, tables and submission."""
