"""Measurements of emmy itself. Nothing here runs in the tests: timings belong on an idle machine."""
