"""Compiled plans, one per message type, shared by all threads."""

from collections.abc import Callable
from threading import RLock
from typing import Generic, Protocol, TypeVar

from google.protobuf.descriptor import Descriptor

from foundation.json.shape import Shape, shape_of


class Plan(Protocol):
    """A plan is created empty and compiled later, so that recursive types can refer to it."""

    def compile(self, shape: Shape) -> None:
        """Fill the plan; may ask for the plans of other types. Raises ShapeError."""
        ...


P = TypeVar("P", bound=Plan)


class Plans(Generic[P]):
    """Compiles each type once; threads see a plan only when all that it refers to is ready."""

    def __init__(self, create: Callable[[Shape], P]) -> None:
        self._create = create
        self._ready: dict[Descriptor, P] = {}
        self._compiling: dict[Descriptor, P] = {}
        self._lock = RLock()

    def get(self, descriptor: Descriptor) -> P:
        """Return the plan of a message type, compiled on first use; raises ShapeError."""
        plan = self._ready.get(descriptor)
        if plan is not None:
            return plan
        with self._lock:
            plan = self._ready.get(descriptor) or self._compiling.get(descriptor)
            return plan or self._compile(descriptor)

    def _compile(self, descriptor: Descriptor) -> P:
        shape = shape_of(descriptor)
        is_outermost = not self._compiling
        plan = self._compiling[descriptor] = self._create(shape)
        try:
            plan.compile(shape)
            if is_outermost:
                self._ready |= self._compiling
        finally:
            if is_outermost:
                self._compiling.clear()
        return plan
