"""GROUP BY over TUMBLE, HOP and CUMULATE with built-in aggregates: rows go into panes, windows are made of panes."""

from millstream.kernels.window_groups.spec import WindowGroupSpec

__all__ = ["WindowGroupSpec"]
