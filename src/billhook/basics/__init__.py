"""What all of billhook uses, and what knows nothing of it: threads, files, text, types' names."""
