"""Read what anybody may have written; write what must survive a power cut."""
