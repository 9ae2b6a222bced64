"""G6: BOS stands twice, from the template and from the tokenizer.

Mechanism: the chat format writes BOS, and the tokenizer, asked to add its special tokens, puts another one in front. No
public report is named by the zoo.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.in_data import in_data
from harness.faults.registry import Fault
from v4model.data.tokenizer import ChatTokenizer, Encoded, Turn

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


_healthy = ChatTokenizer.encode_checked


def _with_another(tokenizer: ChatTokenizer, conversations: Sequence[Sequence[Turn]]) -> Iterator[Encoded]:
    for tokens, supervised in _healthy(tokenizer, conversations):
        yield (tokenizer.bos, *tokens), (False, *supervised)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return in_data(subject, (ChatTokenizer, "encode_checked", _with_another))


FAULT = Fault(
    name="G6",
    title="BOS stands twice",
    reference="no public report",
    expected="text_is_tokenised_once",
    kinds=("all",),
    apply=_apply,
)
