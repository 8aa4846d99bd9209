"""Reports: the context that a template renders, and the files it goes to."""
