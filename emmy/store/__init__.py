"""The tune store: a DuckDB file, the journal beside it, and frames for those who read."""

from emmy.store.rows import AbRow, Decision, RegionRow, SweepRow, VariantRow
from emmy.store.store import FoldReport, Store

__all__ = ["AbRow", "Decision", "FoldReport", "RegionRow", "Store", "SweepRow", "VariantRow"]
