"""Windows of the same length over several streams become one over their union."""

from __future__ import annotations

from millstream.plan.nodes import MOST_INPUTS, Node, Union
from millstream.plan.relations import RangeWindow, Window


def merge_windows(node: Node) -> Node:
    """Merge events, and lay the window over them: it holds them once, and a change is one row to merge, not two."""
    match node:
        case Union(branches=branches) if len(branches) <= MOST_INPUTS:
            windows = {branch.window for branch in branches if isinstance(branch, Window)}
            events = tuple(branch.input for branch in branches if isinstance(branch, Window))
            if len(windows) == 1 and len(events) == len(branches) and not any(each.lasts for each in events):
                [window] = windows
                if isinstance(window, RangeWindow):
                    return Window(Union(events), window)
    return node
