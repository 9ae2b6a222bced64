"""Layouts of packs and what follows from them: pure values, no modules, no process groups."""

from v4model.pack.collate import Pack
from v4model.pack.layout import PackLayout
from v4model.pack.visibility import PoolVisibility, Visibility, visibility_of
from v4model.pack.windows import Windows, windows_of

__all__ = ["Pack", "PackLayout", "PoolVisibility", "Visibility", "Windows", "visibility_of", "windows_of"]
