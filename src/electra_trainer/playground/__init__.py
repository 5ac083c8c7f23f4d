"""Networks on one page in the browser: words with their probabilities, candidates, labels."""
