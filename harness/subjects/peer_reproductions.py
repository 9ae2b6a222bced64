"""A violation of a public model as a script of its own: its package, torch and nothing of this repository.

A script draws small weights, so its figures are not the harness's; it runs what its users run, and compares a pack with
its samples alone, and with itself after other token ids where they may not matter. It ends with 1 where one of these
is off, so that a fix shows.
"""

from __future__ import annotations

import pprint
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError
from harness.subjects import peer_nemo_automodel
from harness.subjects.support import kept_clear, unsupported_by
from v4model.hf_settings import transformers_settings

if TYPE_CHECKING:
    from harness.case import Case

_COMPARE = """
def differences(a, b):
    return [float((x - y).abs().max()) for x, y in zip(a.split(LENGTHS), b.split(LENGTHS))]


ids = torch.randint(0, SETTINGS["vocab_size"], (sum(LENGTHS),))
wrong = False
with torch.no_grad():
    packed, alone = run(ids, LENGTHS), [run(part, [len(part)]) for part in ids.split(LENGTHS)]
    for depth, logits in enumerate(packed):
        found = differences(logits, torch.cat([one[depth] for one in alone]))
        print(f"depth {depth}, packed against alone, by sample: {found} (expected 0)")
        wrong |= max(found) > 1e-4
    for number, start in enumerate(sum(LENGTHS[:n]) for n in range(len(LENGTHS))):
        other = ids.clone()
        other[start : start + LENGTHS[number]] = (other[start : start + LENGTHS[number]] + 1) % SETTINGS["vocab_size"]
        for depth, (one, two) in enumerate(zip(run(other, LENGTHS), packed)):
            found = [one for n, one in enumerate(differences(one, two)) if n != number]
            if found:
                print(f"depth {depth}, others moved by other ids in sample {number}: {found} (expected 0)")
                wrong |= max(found) > 1e-4
        other, last = ids.clone(), start + LENGTHS[number] - 1
        other[last] = (other[last] + 1) % SETTINGS["vocab_size"]
        for depth, (one, two) in enumerate(zip(run(other, LENGTHS), packed)):
            rows = slice(start, last - depth)
            if rows.stop > rows.start:
                found = float((one[rows] - two[rows]).abs().max())
                print(f"depth {depth}, sample {number} moved by its own later token: {found} (expected 0)")
                wrong |= found > 1e-4
sys.exit(int(wrong))
"""

_TRANSFORMERS = """import sys

import torch
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

LENGTHS = {lengths}
SETTINGS = {settings}

torch.manual_seed(0)
model = DeepseekV4ForCausalLM._from_config(DeepseekV4Config(**SETTINGS), attn_implementation="eager").eval()
with torch.no_grad():
    for weight in model.parameters():
        weight.normal_(std=weight.shape[-1] ** -0.5)


def run(ids, lengths):
    position_ids = torch.cat([torch.arange(length) for length in lengths])[None]
    return [model(input_ids=ids[None], position_ids=position_ids).logits[0]]

"""

_NEMO = """import sys

import torch
from nemo_automodel.components.models.common.utils import BackendConfig
from nemo_automodel.components.models.deepseek_v4.config import DeepseekV4Config
from nemo_automodel.components.models.deepseek_v4.model import DeepseekV4ForCausalLM

LENGTHS = {lengths}
SETTINGS = {settings}
BACKEND = {backend}

torch.manual_seed(0)
model = DeepseekV4ForCausalLM(DeepseekV4Config(**SETTINGS, dtype="float32"), backend=BackendConfig(**BACKEND)).train()
with torch.no_grad():
    for weight in model.parameters():
        weight.normal_(std=weight.shape[-1] ** -0.5)


def run(ids, lengths):
    position_ids = torch.cat([torch.arange(length) for length in lengths])[None]
    seq_lens = torch.tensor([lengths])
    out = model(
        ids[None], position_ids=position_ids, qkv_format="thd", seq_lens=seq_lens, seq_lens_padded=seq_lens
    )
    hidden = out.mtp_per_depth_h or []
    found = [out.logits.reshape(len(ids), -1), *(model.lm_head(one)[0] for one in hidden)]
    # Depth k has nothing to predict at the last k tokens of a sample: they are left out.
    for depth, logits in enumerate(found):
        for end in torch.tensor(lengths).cumsum(0).tolist():
            logits[max(end - depth, 0) : end] = 0
    return found

"""

_MEGATRON = """import sys

import torch
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.multi_token_prediction import roll_tensor

LENGTHS = {lengths}
SLOTS = {slots}

real, slots = (torch.tensor([0, *sizes]).cumsum(0).int() for sizes in (LENGTHS, SLOTS))
params = PackedSeqParams(
    qkv_format="thd", cu_seqlens_q=real, cu_seqlens_kv=real, cu_seqlens_q_padded=slots, cu_seqlens_kv_padded=slots
)
ids, expected = torch.zeros(1, sum(SLOTS), dtype=torch.long), torch.zeros(1, sum(SLOTS), dtype=torch.long)
for number, (start, length) in enumerate(zip(slots.tolist(), LENGTHS), 1):
    ids[0, start : start + length] = 100 * number + torch.arange(length)
    expected[0, start : start + length - 1] = ids[0, start + 1 : start + length]
got, _ = roll_tensor(ids, shifts=-1, dims=-1, cp_group=None, packed_seq_params=params)
print("ids     ", ids[0].tolist())
print("got     ", got[0].tolist())
print("expected", expected[0].tolist())
sys.exit(int(not torch.equal(got, expected)))
"""


def _of_transformers(case: Case) -> str:
    settings = transformers_settings(case.v4config())
    return _TRANSFORMERS.format(lengths=list(case.lengths), settings=_written(settings)) + _COMPARE


def _of_nemo_automodel(case: Case) -> str:
    settings, backend = peer_nemo_automodel.settings(case.v4config()), peer_nemo_automodel.BACKEND
    return _NEMO.format(lengths=list(case.lengths), settings=_written(settings), backend=_written(backend)) + _COMPARE


def _of_megatron_core(case: Case) -> str:
    # Padding in front of a sample is what it takes; a case whose padding lies elsewhere gets some.
    slots = [length + 3 for length in case.lengths] if case.slots is None else list(case.slots)
    return _MEGATRON.format(lengths=list(case.lengths), slots=slots)


_BY_PACKAGE: dict[str, Callable[[Case], str]] = {
    "transformers": _of_transformers,
    "nemo_automodel": _of_nemo_automodel,
    "megatron-core": _of_megatron_core,
}


def reproduction(package: str, case: Case, subject: object) -> str:
    """The script for a case of a public model; raises UsageError for a package that has none."""
    if package not in _BY_PACKAGE:
        raise UsageError(got=f"package {package}", expected=f"one of {', '.join(_BY_PACKAGE)}", where="--issue")
    return _BY_PACKAGE[package](kept_clear(case, unsupported_by(subject)))


def _written(value: Any) -> str:
    return pprint.pformat(value, width=110, sort_dicts=False)
