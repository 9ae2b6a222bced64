"""How a fault takes hold of a subject built on `V4Model`, and lets it go as it was, also after an exception."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from unittest import mock

from torch import Tensor, nn

from harness.errors import UsageError
from v4model import Pack, V4Model, V4Output

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject
    from v4model.exchange import Ranks
    from v4model.layers.context import PackContext
    from v4model.pack.counts import StepCounts

Part = TypeVar("Part", bound=nn.Module)
Falsify: TypeAlias = "Callable[[PackContext], PackContext]"
"""Makes of what a module knows of its pack what the defect makes of it; a new value, the old one is shared."""

_Inputs: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
Change: TypeAlias = Callable[[tuple[Any, ...], Mapping[str, Any]], _Inputs]
"""change(positional, keywords) of a call gives those that take their place."""


def model_of(subject: Subject) -> V4Model:
    """The model behind a subject; raises UsageError for a subject that is not built on `V4Model`."""
    model = getattr(subject, "model", None)
    if not isinstance(model, V4Model):
        raise UsageError(got=subject.name, expected="a subject whose `model` is a V4Model", where="planting a fault")
    return model


def parts(subject: Subject, kind: type[Part]) -> list[Part]:
    """Every module of a class, in the order of the module tree."""
    return [module for module in model_of(subject).modules() if isinstance(module, kind)]


def parts_of_trunk(subject: Subject, kind: type[Part]) -> list[Part]:
    """As `parts`, without those of the MTP depths."""
    return [module for module in model_of(subject).trunk.modules() if isinstance(module, kind)]


def parts_of_mtp(subject: Subject, kind: type[Part]) -> list[Part]:
    """As `parts`, of the MTP depths alone."""
    return [module for module in model_of(subject).mtp.modules() if isinstance(module, kind)]


def trunk_and_mtp(subject: Subject) -> list[nn.Module]:
    """What a forward pass hands the context to: the trunk, and each MTP depth."""
    model = model_of(subject)
    return [model.trunk, *model.mtp]


@contextmanager
def given(modules: Iterable[nn.Module], change: Change) -> Iterator[None]:
    """Every call of the modules gets change(positional, keywords) in place of its arguments."""

    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Inputs:
        return change(args, kwargs)

    handles = [module.register_forward_pre_hook(hook, with_kwargs=True) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def giving(modules: Iterable[nn.Module], change: Callable[[Mapping[str, Any], Any], Any]) -> Iterator[None]:
    """Every call of the modules gives change(keywords, output) in place of its output."""

    def hook(_module: nn.Module, _args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        return change(kwargs, output)

    handles = [module.register_forward_hook(hook, with_kwargs=True) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def told(modules: Iterable[nn.Module], falsify: Falsify) -> Iterator[None]:
    """The modules, and all below them, are told a falsified context."""

    def change(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Inputs:
        return args, {**kwargs, "context": falsify(kwargs["context"])}

    with given(modules, change):
        yield


class WhileInside:
    """A patch that holds while anyone is inside: ranks of one process are at the same time."""

    def __init__(self, owner: object, name: str, value: object) -> None:
        self._patch, self._inside, self._lock = mock.patch.object(owner, name, value), 0, Lock()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The first plants, the last one out restores."""
        with self._lock:
            if not self._inside:
                self._patch.start()
            self._inside += 1
        try:
            yield
        finally:
            # After an error all ranks leave at once, without the baton that has them run one at a time.
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._patch.stop()


@contextmanager
def replaced(subject: Subject, owner: object, name: str, value: object) -> Iterator[None]:
    """`name` of a module or class is `value` whenever the subject's own forward runs.

    Only then: another model in this process stays healthy, and so does what a property may compare with.
    """
    model = model_of(subject)
    healthy, patch = model.forward, WhileInside(owner, name, value)

    def forward(
        pack: Pack,
        *,
        logits: bool = False,
        embeddings: Tensor | None = None,
        ranks: Ranks | None = None,
        counts: StepCounts | None = None,
    ) -> V4Output:
        with patch.inside():
            return healthy(pack, logits=logits, embeddings=embeddings, ranks=ranks, counts=counts)

    with mock.patch.object(model, "forward", forward):
        yield
