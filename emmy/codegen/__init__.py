"""Source printers: OpenCL C and CUDA C++."""

from emmy.codegen.source import render, render_plan

__all__ = ["render", "render_plan"]
