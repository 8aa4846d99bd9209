"""Late expansion of kernel IR: what a language has no word for becomes what it has."""

from emmy.passes.expand.run import expand

__all__ = ["expand"]
