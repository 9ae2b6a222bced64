"""What is run on one host with so many GPUs, one stage after another, and what is trained in each."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from v4model.config import V4Config
from v4model.errors import ConfigError
from v4model.parallel.groups import Mesh
from v4model.train.memory import host_of, peak_of
from v4model.train.work import Work

RECIPE = Path(__file__).parent.parent / "run_128k_thd_packed.sh"
LARGEST_WINDOW = 131072
EXPERTS = (256, 128, 64, 32)
SCALING_EXPERTS = 32
"""As many as one card holds: what is compared over 1 to 8 cards is one model."""
DEEP_LAYERS = 6
_OFFLOADS = (0.0, 0.5, 1.0)
_FULL = 0.95
"""Share of a card's memory, and of the host's, that a plan may take."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """gpus: how many are used. memory and host_memory: bytes of one card, and of the machine."""

    gpus: int
    memory: float
    host_memory: float

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise ConfigError(got=f"{self.gpus} GPUs", expected="at least 1", where="the host")

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many GPUs are trained on in turn: powers of two, then all."""
        powers = [1 << bit for bit in range(self.gpus.bit_length())]
        return tuple(sorted({*(size for size in powers if size <= self.gpus), self.gpus}))


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training run, as the table needs it: the model, the ranks, and where packs come from."""

    preset: str
    changes: Mapping[str, str]
    window: int
    steps: int
    packs: int
    cp: int
    ep: int
    gpus: int
    dtype: str
    engine: str
    offload: float
    device: str
    data: str | None
    recompute: bool = True
    seed: int = 0
    mode: str = "best-fit"
    tokenizer: str = "v4"

    @property
    def replicas(self) -> int:
        """Data-parallel ones."""
        return self.gpus // self.cp

    def command(self, output: Path) -> list[str]:
        """The seed's recipe with these settings."""
        switches = {True: "on", False: "off"}
        settings = {
            "nnodes": 1,
            "gpus-per-node": self.gpus,
            "pp": 1,
            "cp": self.cp,
            "ep": self.ep,
            "engine": self.engine,
            "offload": f"{self.offload:g}",
            "recompute": switches[self.recompute],
            "preset": self.preset,
            "set": " ".join(f"{name}={value}" for name, value in self.changes.items()),
            "window": self.window,
            "mode": self.mode,
            "tokenizer": self.tokenizer,
            "steps": self.steps,
            "packs-per-replica": self.packs // self.replicas,
            "lr": "1e-4",
            "warmup": 0,
            "dtype": self.dtype,
            "seed": self.seed,
            "device": self.device,
            "checkpoints": "off",
            "preflight": "off",
            "python": sys.executable,
            "output": output,
        }
        if self.data is not None:
            settings["data"] = self.data
        words = [str(RECIPE), *(f"--{name}={value}" for name, value in settings.items())]
        return ["env", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", *words] if self.device == "cuda" else words


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One thing to be run. kind: what it leaves in its folder: "ranks" gpus.json, "properties" report.json, and
    "scaling", "seed" and "curve" a run's log.jsonl.
    """

    name: str
    kind: str
    command: list[str]
    training: Training | None = None
    about: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Stage:
        """The inverse of `to_json`."""
        training = None if data["training"] is None else Training(**data["training"])
        return Stage(**{**data, "training": training})


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What makes the difference between a machine with GPUs and a rehearsal without."""

    rank_words: tuple[str, ...]
    subject: str
    preset: str
    long_window: int
    short_window: int
    steps: int
    device: str
    dtype: str
    engine: str
    scaling: Mapping[str, str] = field(default_factory=dict)
    layers: Mapping[str, str] = field(default_factory=dict)
    deep: Mapping[str, str] = field(default_factory=dict)


def on_gpus() -> Sizes:
    """The seed's three layers of Flash, and six: one of each kind twice, the first three with hash routers."""
    return Sizes(
        rank_words=("--tokens", "2048"),
        subject="v4model-nccl",
        preset="flash",
        long_window=LARGEST_WINDOW,
        short_window=4096,
        steps=10,
        device="cuda",
        dtype="bfloat16",
        engine="megatron",
        layers={"num_hidden_layers": "3", "compress_ratios": "0:4:128:0", "num_hash_layers": "1"},
        deep={"num_hidden_layers": f"{DEEP_LAYERS}", "compress_ratios": "0:4:128:0:4:128:0"},
    )


def rehearsal() -> Sizes:
    """The same stages on processes of a CPU, in minutes: the tiny model, its 8 experts, and short windows."""
    return Sizes(
        rank_words=("--tokens", "256", "--model", "tiny", "--backend", "gloo"),
        subject="v4model",
        preset="tiny",
        long_window=256,
        short_window=64,
        steps=3,
        device="cpu",
        dtype="float32",
        engine="torch",
    )


def stages(host: Host, folder: Path, *, sizes: Sizes, data: str | None, longest: int) -> Iterator[Stage]:
    """All stages, in order. longest: tokens of the data's longest sample, for the memory that a run is planned to take.

    Each writes into `folder`/name.
    """
    python, gpus = sys.executable, host.gpus
    if gpus > 1:
        words = ["--gpus", str(gpus), *sizes.rank_words, "--output", str(folder / "ranks" / "gpus.json")]
        yield Stage(name="ranks", kind="ranks", command=[python, "-m", "harness.subjects.gpus", *words])
        words = ["--subject", sizes.subject, "--cp", ",".join(str(size) for size in host.sizes if size > 1)]
        only = ("cp_matches_one_rank", "no_rank_waits", "ep_matches_one_rank", "pp_matches_one_rank")
        words += [word for name in only for word in ("--only", name)]
        # One job: every job would start its own ranks on the same GPUs.
        words += ["--jobs", "1", "--output", str(folder / "properties")]
        yield Stage(name="properties", kind="properties", command=[python, "-m", "harness", "run", *words])

    def training(name: str, kind: str, about: str, **of_run: Any) -> Stage:
        run = Training(
            preset=sizes.preset,
            dtype=sizes.dtype,
            engine=sizes.engine,
            device=sizes.device,
            steps=sizes.steps,
            data=data,
            **of_run,
        )
        return Stage(name=name, kind=kind, command=run.command(folder / name), training=run, about=about)

    scaled = {**sizes.layers, **({"n_routed_experts": str(SCALING_EXPERTS)} if sizes.layers else {})}
    long, short = sizes.long_window, sizes.short_window
    for size in host.sizes:
        yield training(
            f"scaling-{size}", "scaling", "", changes=scaled, window=long, packs=1,
            cp=size, ep=size, gpus=size, offload=0.5 if sizes.engine == "megatron" else 0.0,
        )  # fmt: skip
    for name, layers in (("seed", sizes.layers), ("deep", sizes.deep)):
        experts, offload = fitting(host, sizes=sizes, layers=layers, longest=longest)
        changes = {**layers, **({"n_routed_experts": str(experts)} if experts else {})}
        about = f"{experts} experts are planned to fit" if experts else ""
        long_run = {"changes": changes, "window": long, "packs": 1, "cp": gpus, "offload": offload}
        kind = "seed" if name == "seed" else "curve"
        yield training(f"{name}-{long}", kind, about, ep=gpus, gpus=gpus, **long_run)
        if name == "deep":
            short_run = long_run | {"window": short, "packs": max(long // short, gpus), "cp": 1}
            yield training(f"{name}-{short}", kind, about, ep=gpus, gpus=gpus, **short_run)


def fitting(host: Host, *, sizes: Sizes, layers: Mapping[str, str], longest: int) -> tuple[int | None, float]:
    """The most experts that `v4model plan`'s memory model lets the long run have, and the least offload for them.

    None experts: those of the preset, where nothing is planned (the engine torch on a CPU). If nothing fits, the
    smallest is tried: the machine will say.
    """
    if sizes.engine != "megatron":
        return None, 0.0
    from v4model import presets
    from v4model.changes import with_changes

    for experts in EXPERTS:
        config = with_changes(presets.named(sizes.preset), {**layers, "n_routed_experts": str(experts)}, where="host")
        for offload in _OFFLOADS:
            if experts % host.gpus == 0 and _fits(config, host, offload=offload, sizes=sizes, longest=longest):
                return experts, offload
    return EXPERTS[-1], _OFFLOADS[-1]


def _fits(config: V4Config, host: Host, *, offload: float, sizes: Sizes, longest: int) -> bool:
    mesh = Mesh(cp=host.gpus, ep=host.gpus)
    work = Work(
        tokens=-(-sizes.long_window // host.gpus),
        longest=longest,
        dtype=sizes.dtype,
        engine=sizes.engine,
        replicas=host.gpus,
        offload=offload,
    )
    share = mesh.share(0)
    on_card = peak_of(config, share=share, work=work).total
    on_host = host_of(config, share=share, work=work) * host.gpus
    return on_card <= _FULL * host.memory and on_host <= _FULL * host.host_memory
