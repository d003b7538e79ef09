"""The files that bring an app to production: `billhook deploy`, and deploy/ of the repository."""
