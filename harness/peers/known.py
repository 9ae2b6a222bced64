"""The public models that the harness can ask, each in the way that its users run it."""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import UsageError

PROPERTIES = (
    "packed_equals_alone",
    "query_sees_only_its_sample",
    "query_sees_no_future",
    "padding_changes_nothing",
    "matches_plain_reading",
    "gradients_are_derivatives",
    "labels_stay_inside",
)
"""What they are asked: whatever says something of a model's outputs. Its trainer's part is not asked."""


@dataclass(frozen=True, kw_only=True)
class KnownPeer:
    """name: of rows, folders and `--only`. package: the distribution whose version counts. project: where its tracker
    is. factory: `module:factory` of the adapter. environment: that of `harness.peers.environments`, "" for the one that
    runs the harness.
    """

    name: str
    about: str
    package: str
    project: str
    factory: str
    environment: str = ""


_TRANSFORMERS = "harness.subjects.peer_transformers"
_NEMO = "harness.subjects.peer_nemo_automodel"

KNOWN = (
    KnownPeer(
        name="transformers-alone",
        about="one sample at a time, the reference",
        package="transformers",
        project="huggingface/transformers",
        factory=f"{_TRANSFORMERS}:OneAtATime",
    ),
    KnownPeer(
        name="transformers-padded",
        about="a batch padded on the right, with its attention mask",
        package="transformers",
        project="huggingface/transformers",
        factory=f"{_TRANSFORMERS}:PaddedBatch",
    ),
    KnownPeer(
        name="transformers-packed",
        about="one row with position_ids that restart",
        package="transformers",
        project="huggingface/transformers",
        factory=f"{_TRANSFORMERS}:ByPositions",
    ),
    KnownPeer(
        name="nemo_automodel-packed",
        about="qkv_format thd, seq_lens and position_ids, with MTP, as shipped",
        package="nemo_automodel",
        project="NVIDIA-NeMo/Automodel",
        factory=f"{_NEMO}:AsShipped",
        environment="nemo_automodel-0.7.0",
    ),
    KnownPeer(
        name="nemo_automodel-corrected",
        about="samples padded to the ratios, one packed mask, the shift inside samples",
        package="nemo_automodel",
        project="NVIDIA-NeMo/Automodel",
        factory=f"{_NEMO}:Corrected",
        environment="nemo_automodel-0.7.0",
    ),
    KnownPeer(
        name="megatron-core-roll",
        about="its roll_tensor and PackedSeqParams under the MTP of this repository's model",
        package="megatron-core",
        project="NVIDIA/Megatron-LM",
        factory="harness.subjects.peer_megatron_core:build",
    ),
)


def find_peers(names: list[str] | None) -> tuple[KnownPeer, ...]:
    """The peers of these names, in their order here; all for None. Raises UsageError for an unknown one."""
    known = {peer.name: peer for peer in KNOWN}
    for name in names or ():
        if name not in known:
            raise UsageError(got=f"unknown peer {name!r}", expected=f"one of {', '.join(known)}", where="peers")
    return tuple(peer for peer in KNOWN if names is None or peer.name in names)


def of_factory(factory: str) -> KnownPeer | None:
    """The peer that a subject's name means, in whatever environment: "worker:PYTHON:module:factory" or its end."""
    return next((peer for peer in KNOWN if factory == peer.factory or factory.endswith(f":{peer.factory}")), None)
