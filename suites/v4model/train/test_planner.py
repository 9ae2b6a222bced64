"""The planner: the two layouts that Flash was trained with on 24 cards of 192 GB, and why others are not possible."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from v4model import ConfigError, cli, presets
from v4model.parallel.groups import Mesh
from v4model.train.planner import Cluster, Plan, plan

CLUSTER = Cluster(nodes=3, gpus=8, memory=192e9, host_memory=2e12)


def planned(window: int, cluster: Cluster = CLUSTER) -> Plan:
    return plan(presets.flash(), cluster, window=window)


@pytest.mark.parametrize(
    ("window", "mesh"), [(131072, Mesh(pp=3, cp=8, ep=8, dp=1)), (4096, Mesh(pp=3, cp=1, ep=8, dp=8))]
)
def test_flash_on_three_nodes(window: int, mesh: Mesh) -> None:
    first = planned(window).layouts[0]
    assert first.mesh == mesh
    assert first.offload
    assert not first.is_tight


def test_every_layout_uses_every_card_and_fits() -> None:
    for layout in planned(4096).layouts:
        assert layout.mesh.world == 24
        assert layout.peak.total <= 192e9
        assert layout.host_bytes <= 2e12


def test_tight_layouts_come_last_and_are_told() -> None:
    cluster = replace(CLUSTER, memory=planned(131072).layouts[0].peak.total / 0.95)
    found = planned(131072, cluster).layouts
    assert [layout.is_tight for layout in found] == sorted(layout.is_tight for layout in found)
    assert found[0].is_tight


def test_why_an_axis_is_not_possible() -> None:
    axes = {axis.name: axis for axis in planned(4096).axes}
    assert list(axes) == ["TP", "PP", "CP", "EP", "DP"]
    assert axes["TP"].sizes == (1,)
    assert "no head axis" in axes["TP"].why
    assert axes["EP"].sizes == (1, 2, 4, 8)
    few = plan(replace(presets.flash(), n_routed_experts=12), CLUSTER, window=4096)
    assert {axis.name: axis.sizes for axis in few.axes}["EP"] == (1, 2, 4)


def test_a_host_that_is_too_small_rules_offload_out() -> None:
    assert planned(131072, replace(CLUSTER, host_memory=1e12)).layouts == ()


def test_where_nothing_fits_the_closest_is_told() -> None:
    found = planned(131072, Cluster(nodes=1, gpus=8, memory=80e9, host_memory=2e12))
    assert found.layouts == ()
    assert not found.closest.fits


def test_a_small_model_keeps_its_optimizer_on_the_card() -> None:
    first = plan(presets.three_kinds(), Cluster(nodes=1, gpus=1, memory=16e9, host_memory=1e10), window=4096).layouts[0]
    assert (first.mesh, first.offload, first.host_bytes) == (Mesh(), False, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"window": 0}, "window 0"), ({"window": 16, "longest": 17}, "1 <= longest <= window")],
)
def test_windows_that_are_none(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(presets.tiny(), CLUSTER, **changes)
    with pytest.raises(ConfigError, match="nodes 0"):
        Cluster(nodes=0, gpus=8, memory=1e9, host_memory=1e9)


WORDS = ["plan", "--model", "flash", "--nodes", "3", "--gpus", "8", "--memory", "192"]


def test_the_command_prints_axes_layouts_and_logits(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli([*WORDS, "--window", "131072"]) == 0
    said = capsys.readouterr().out
    assert "no head axis" in said
    assert "another process taking 6 GB ends the run" not in said.split("Logits")[0].splitlines()[8]
    assert "GB in chunks of 1,024 tokens" in said


def test_the_command_takes_plain_operations_too(capsys: pytest.CaptureFixture[str]) -> None:
    peaks = {}
    for ops in ("fast", "plain", None):
        words = [*WORDS, "--window", "4096", "--json", *([] if ops is None else ["--ops", ops])]
        assert cli.run_cli(words) == 0
        peaks[ops] = json.loads(capsys.readouterr().out)["layouts"][0]["share_of_card"]
    assert peaks[None] == peaks["fast"] < peaks["plain"]
    assert cli.run_cli([*WORDS, "--ops", "quick"]) == 2


def test_the_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli([*WORDS, "--window", "4096", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == 1
    assert found["layouts"][0]["mesh"] == {"cp": 1, "dp": 8, "pp": 3, "ep": 8}


def test_the_command_where_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["plan", "--memory", "80", "--window", "131072"]) == 1
    assert "does not fit" in capsys.readouterr().out
    assert cli.run_cli(["plan", "--set", "n_experts=3"]) == 2
