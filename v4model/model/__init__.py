"""The whole model: embedding, blocks, trunk, head, MTP and their losses."""

from v4model.model.model import MTPOutput, V4Model, V4Output

__all__ = ["MTPOutput", "V4Model", "V4Output"]
