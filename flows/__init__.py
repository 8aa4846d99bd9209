"""The flows: what runs on a schedule, resumes where it stopped, and asks a person before it writes a golden."""
