"""Handlers of a larger project: a module for each thing they are about, each with its own group."""
