"""Many comparisons, one verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.properties.measure import moved_rows, place_of, row_differences, tokens_of
from harness.tolerance import EXACT, GRADIENT_FLOOR_SHARE, largest_magnitude, relative_error
from harness.verdict import Verdict
from harness.witness import Place, Witness

if TYPE_CHECKING:
    from harness.properties.runs import Run
    from harness.subjects.protocol import Observation
    from v4model import PackLayout


VALUES = "values"
EMBEDDINGS = "embeddings"
"""What errors are kept by, beside the names of parameters."""


class Tally:
    """Collects comparisons; remembers the errors largest for their bounds and the first comparison past its bound."""

    def __init__(
        self, name: str, *, bound: float, layout: PackLayout, of_gradients: Mapping[str, float] | None = None
    ) -> None:
        """name: the property's. bound: relative error allowed. layout: of what `got` stands for, to name places.

        of_gradients: where bounds are computed, those of gradients by the parameter's name, `EMBEDDINGS` among them;
        `bound` for the rest. A gradient of few elements, a sum that cancels, is then judged by the size of its module's
        largest: by its own it would round by more than any other.
        """
        self._name = name
        self._bound = bound
        self._of_gradients = of_gradients
        self._layout = layout
        # By what was compared: the largest error for its bound, and that bound.
        self._worst = {VALUES: (0.0, bound)}
        self._by_depth: dict[int, float] = {}
        self._witness: Witness | None = None

    @property
    def violated(self) -> bool:
        """Whether a comparison has gone past its bound."""
        return self._witness is not None

    def verdict(self) -> Verdict:
        """HOLDS with the largest error, or VIOLATED with the first witness."""
        if self._witness is not None:
            return Verdict.violated(self._witness)
        depths = range(max(self._by_depth, default=-1) + 1)
        by_depth = tuple(self._by_depth.get(depth, 0.0) for depth in depths)
        error, bound = max(self._worst.values(), key=_strain)
        return Verdict.holds(error=error, bound=bound, by_depth=by_depth)

    @property
    def errors(self) -> Mapping[str, float]:
        """The largest error of `VALUES` (sums among them), of each parameter's gradient, and of `EMBEDDINGS`'."""
        return {name: error for name, (error, _) in self._worst.items()}

    def rows(
        self,
        got: Tensor,
        expected: Tensor,
        *,
        tokens: Tensor,
        what: str,
        depth: int = 0,
        branch: str = "unknown",
        layer: str | None = None,
        floor: float = 0.0,
    ) -> None:
        """Compare rows of two tensors [N] or [N, X], relative to max(the largest expected, floor).

        tokens [N]: the token that each row belongs to.
        """
        error = relative_error(got, expected, floor=floor)
        kind = layer if branch == "gradient" and layer is not None else VALUES
        bound = self._bound_of(kind)
        self._measured(kind, error, bound, depth=depth)
        if error <= bound:
            return
        worst = int(row_differences(got, expected).argmax())
        self.fail(
            what=what,
            branch=branch,
            magnitude=error,
            bound=bound,
            depth=depth,
            layer=layer,
            query=place_of(self._layout, int(tokens[worst])),
            values=_worst_values(got[worst].detach(), expected[worst].detach()),
        )

    @property
    def bound(self) -> float:
        """The relative error allowed."""
        return self._bound

    def still(self, got: Tensor, expected: Tensor, *, what: str, depth: int) -> None:
        """Compare what should not have moved, a row a token of the layout: to the bit if the bound is 0."""
        (self.rows if self._bound else self.bits)(got, expected, tokens=torch.arange(len(got)), depth=depth, what=what)

    def bits(
        self,
        got: Tensor,
        expected: Tensor,
        *,
        what: str,
        depth: int = 0,
        branch: str = "unknown",
        layer: str | None = None,
        tokens: Tensor | None = None,
    ) -> None:
        """Compare two tensors to the bit; tokens [N] as for `rows`, or None if rows are no tokens."""
        got, expected = (got.reshape(1), expected.reshape(1)) if got.ndim == 0 else (got, expected)
        moved = tokens_of(moved_rows(got, expected))
        if not len(moved):
            return
        worst = int(moved[row_differences(got[moved], expected[moved]).argmax()])
        self.fail(
            what=what,
            branch=branch,
            magnitude=float(row_differences(got[worst : worst + 1], expected[worst : worst + 1])),
            bound=EXACT,
            depth=depth,
            layer=layer,
            query=None if tokens is None else place_of(self._layout, int(tokens[worst])),
            values=_worst_values(got[worst].detach(), expected[worst].detach()),
        )

    def zeros(self, got: Tensor, *, tokens: Tensor, what: str, depth: int, branch: str) -> None:
        """Rows [N] or [N, X] of tokens [N] must be exactly 0, of either sign."""
        if bool((got != 0).any()):
            self.bits(got + 0.0, torch.zeros_like(got), tokens=tokens, what=what, depth=depth, branch=branch)

    def scalar(self, got: Tensor, expected: Tensor, *, what: str, floor: float = 0.0, depth: int = 0) -> None:
        """Compare two scalars, relative to max(the expected magnitude, floor)."""
        error = relative_error(got.reshape(()), expected.reshape(()), floor=floor)
        self._measured(VALUES, error, self._bound, depth=depth)
        if error > self._bound:
            values = _worst_values(got.detach(), expected.detach())
            self.fail(what=what, branch="loss", magnitude=error, values=values, depth=depth)

    def sums(self, got: Mapping[str, Tensor], expected: Mapping[str, Tensor], *, than: str) -> None:
        """Compare named sums.

        None is judged against less than a share of the largest: the KL of equal distributions is rounding around 0.
        """
        floor = GRADIENT_FLOOR_SHARE * max((largest_magnitude(value) for value in expected.values()), default=0.0)
        for name in sorted(expected):
            what = f"the sum of {name} differs from {than}"
            self.scalar(got[name], expected[name], floor=floor, what=what, depth=_depth_of(name))

    def counts(self, got: Mapping[str, float], expected: Mapping[str, float], *, than: str) -> None:
        """Compare named counts; each must be equal."""
        for name in sorted({*got, *expected}):
            one, other = got.get(name), expected.get(name)
            if one != other:
                magnitude = math.inf if one is None or other is None else abs(one - other)
                what = f"the count of {name} differs from {than}"
                self.fail(
                    what=what,
                    branch="loss",
                    magnitude=magnitude,
                    bound=EXACT,
                    depth=_depth_of(name),
                    values=(f"{one}", f"{other}"),
                )

    def _measured(self, kind: str, error: float, bound: float, *, depth: int) -> None:
        self._keep(kind, error, bound)
        self._by_depth[depth] = max(self._by_depth.get(depth, 0.0), error)

    def _keep(self, kind: str, error: float, bound: float) -> None:
        self._worst[kind] = max(self._worst.get(kind, (0.0, bound)), (error, bound), key=_strain)

    def _bound_of(self, kind: str) -> float:
        return self._bound if self._of_gradients is None else self._of_gradients.get(kind, self._bound)

    def gradients(self, got: Mapping[str, Tensor], expected: Mapping[str, Tensor], *, floor: float, than: str) -> None:
        """Compare gradients by name, each relative to max(its own maximum, floor); the worst makes the witness."""
        floors = {} if self._of_gradients is None else _of_modules(expected)
        errors = {
            name: relative_error(grad, expected[name], floor=max(floor, floors.get(name, 0.0)))
            for name, grad in got.items()
        }
        for name, error in errors.items():
            self._keep(name, error, self._bound_of(name))
        name = max(errors, key=lambda name: _strain((errors[name], self._bound_of(name))))
        bound = self._bound_of(name)
        if errors[name] > bound:
            what = f"the parameter's gradient differs from {than}"
            values = _worst_values(got[name], expected[name])
            self.fail(what=what, branch="gradient", magnitude=errors[name], bound=bound, layer=name, values=values)

    def choice(self, name: str, cost: Tensor, *, tokens: Tensor, bound: float, depth: int) -> None:
        """What the choices of a part cost [N], relative to the largest value that it chooses by, within rounding.

        tokens [N]: the token of each, -1 for one outside the layout.
        """
        worst = int(cost.argmax())
        self._measured(f"choices of {name}", float(cost[worst]), bound, depth=0)
        if float(cost[worst]) > bound:
            token = int(tokens[worst])
            self.fail(
                what="two runs choose apart, by more than rounding",
                branch="router" if name.endswith(".gate") else "picks",
                magnitude=float(cost[worst]),
                bound=bound,
                depth=depth,
                layer=name,
                query=None if token < 0 else place_of(self._layout, token),
            )

    def fail(
        self,
        *,
        what: str,
        branch: str,
        magnitude: float,
        bound: float | None = None,
        depth: int = 0,
        layer: str | None = None,
        query: Place | None = None,
        values: tuple[str, str] | None = None,
    ) -> None:
        """Record a violation, unless there is one already; values are what was got and what was expected."""
        self._witness = self._witness or Witness(
            property=self._name,
            depth=depth,
            query=query,
            branch=branch,
            layer=layer,
            what=what,
            magnitude=magnitude,
            bound=self._bound if bound is None else bound,
            got=None if values is None else values[0],
            expected=None if values is None else values[1],
        )


def compare_runs(tally: Tally, got: Run, expected: Run, *, tokens: Tensor, other: Tensor, than: str) -> None:
    """Everything two runs gave: tokens [N] of `got` are the tokens `other` [N] of `expected`.

    than: what `expected` is, for the witness ("the samples alone").
    """
    for depth, (one, two) in enumerate(zip(got.observation.depths, expected.observation.depths, strict=True)):
        for kind, given, wanted in (("logits", one.values, two.values), ("nll", one.nll, two.nll)):
            tally.rows(given[tokens], wanted[other], tokens=tokens, depth=depth, what=f"{kind} differ from {than}")
    tally.sums(got.observation.sums, expected.observation.sums, than=than)
    tally.counts(got.observation.counts, expected.observation.counts, than=than)
    # The floor of design decision 4: scalars that cancel are not judged by their own small size.
    floor = GRADIENT_FLOOR_SHARE * max(
        (largest_magnitude(grad) for grad in expected.of_parameters.values()), default=0.0
    )
    if got.of_embeddings is not None and expected.of_embeddings is not None:
        tally.rows(
            got.of_embeddings[tokens],
            expected.of_embeddings[other],
            tokens=tokens,
            what=f"the gradient at the embedding differs from {than}",
            branch="gradient",
            layer=EMBEDDINGS,
            floor=floor,
        )
    tally.gradients(got.of_parameters, expected.of_parameters, floor=floor, than=than)


def compare_still(tally: Tally, got: Observation, expected: Observation, *, than: str) -> None:
    """Logits, nll, sums and counts of two runs of one layout: to the bit if the tally's bound is 0, else within it."""
    for depth, (one, two) in enumerate(zip(got.depths, expected.depths, strict=True)):
        for kind, given, wanted in (("logits", one.values, two.values), ("nll", one.nll, two.nll)):
            tally.still(given, wanted, depth=depth, what=f"{kind} differ from {than}")
    if tally.bound:
        tally.sums(got.sums, expected.sums, than=than)
    else:
        for name, value in expected.sums.items():
            what = f"the sum of {name} differs from {than}"
            tally.bits(got.sums[name], value, what=what, branch="loss", depth=_depth_of(name))
    tally.counts(got.counts, expected.counts, than=than)


def _of_modules(gradients: Mapping[str, Tensor]) -> dict[str, float]:
    """For each parameter the largest gradient among those of its module and of modules inside that one."""
    sizes = {name: largest_magnitude(grad) for name, grad in gradients.items()}
    modules = {name.rpartition(".")[0] for name in sizes}
    of_module = {
        module: max(size for name, size in sizes.items() if name.startswith(f"{module}." if module else ""))
        for module in modules
    }
    return {name: of_module[name.rpartition(".")[0]] for name in sizes}


def _strain(measured: tuple[float, float]) -> tuple[float, float]:
    """By which the worst of some (error, bound) is found: the error in units of its bound, then the error."""
    error, bound = measured
    return (error / bound if 0 < bound < math.inf else 0.0), error


def _depth_of(name: str) -> int:
    """The depth of a term: k of "mtpk", 0 of any other."""
    return int(name.removeprefix("mtp")) if name.startswith("mtp") else 0


def _worst_values(got: Tensor, expected: Tensor) -> tuple[str, str]:
    """The element of two equally shaped tensors in which they differ most, as text."""
    one, other = got.reshape(-1), expected.reshape(-1)
    worst = int(row_differences(one, other).argmax())
    return f"{float(one[worst]):.9g}", f"{float(other[worst]):.9g}"
