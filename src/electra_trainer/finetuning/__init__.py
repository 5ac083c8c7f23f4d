"""Fine-tuning and evaluation: one engine (run.py), tasks that are one short class each, GLUE, SQuAD and tagging as rows of tables."""
