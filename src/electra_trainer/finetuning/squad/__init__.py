"""SQuAD 1.1 and 2.0: files, windows, heads, answers and scores."""
