"""Classification and regression of your own texts: files, columns, checks."""
