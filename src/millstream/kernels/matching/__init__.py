"""Which rows of a table match a row of a stream: an index on the equalities and ranges of a condition."""

from millstream.kernels.matching.any_index import AnyIndex, index_of
from millstream.kernels.matching.condition import MatchCondition, ValueRange, split_condition
from millstream.kernels.matching.index import MatchIndex, is_compiled

__all__ = ["AnyIndex", "MatchCondition", "MatchIndex", "ValueRange", "index_of", "is_compiled", "split_condition"]
