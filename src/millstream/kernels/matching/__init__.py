"""Which rows of a table match a row of a stream: an index on the equalities and ranges of a condition."""

from millstream.kernels.matching.condition import MatchCondition, ValueRange, split_condition
from millstream.kernels.matching.index import MatchIndex, is_compiled

__all__ = ["MatchCondition", "MatchIndex", "ValueRange", "is_compiled", "split_condition"]
