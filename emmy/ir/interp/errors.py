"""What the interpreter finds wrong with a kernel. Each error names the statement and the threads."""

from __future__ import annotations

from emmy.errors import EmmyError


class KernelFault(EmmyError):
    """Base of everything the interpreter finds."""


class OutOfBounds(KernelFault):
    """An access outside a buffer, or a wide access at an offset that is not a multiple of its width."""


class PoisonRead(KernelFault):
    """A register or shared element is read before it was written, while a copy to it is in flight, or after release."""


class DataRace(KernelFault):
    """Two threads touch an element, one of them writing, and nothing orders the two accesses."""


class Divergence(KernelFault):
    """A statement that a whole group of threads must execute together is reached by some of them only."""


class Deadlock(KernelFault):
    """Every role waits and none can go on."""


class Misuse(KernelFault):
    """A statement in a state that does not allow it, as a commit without a fill."""
