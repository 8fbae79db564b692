"""Rewrites that keep a plan's meaning and lower its cost. One rule is one file, one function, one fixture."""

from millstream.rules.driver import RuleStep, Trace, WhySlow, run_rules
from millstream.rules.drop_implied_pairs import drop_implied_pairs
from millstream.rules.eliminate_distinct import eliminate_distinct
from millstream.rules.eliminate_filter import eliminate_filter
from millstream.rules.eliminate_project import eliminate_project
from millstream.rules.eliminate_window import eliminate_window
from millstream.rules.fuse_events import fuse_events
from millstream.rules.merge_aggregates import merge_aggregates
from millstream.rules.merge_excepts import merge_excepts
from millstream.rules.merge_filters import merge_filters
from millstream.rules.merge_joins import merge_joins
from millstream.rules.merge_projects import merge_projects
from millstream.rules.merge_windows import merge_windows
from millstream.rules.order_joins import order_joins
from millstream.rules.outer_to_inner import outer_to_inner
from millstream.rules.pane_slides import pane_slides
from millstream.rules.prune_columns import prune_columns
from millstream.rules.push_down_distinct import push_down_distinct
from millstream.rules.push_down_filter import push_down_filter
from millstream.rules.push_down_project import push_down_project
from millstream.rules.push_down_summary import push_down_summary
from millstream.rules.push_filter_into_join import push_filter_into_join
from millstream.rules.split_join_condition import split_join_condition
from millstream.rules.tumble_slides import tumble_slides

OPTIMIZE: tuple[RuleStep, ...] = (
    RuleStep(merge_filters, "one mask per batch instead of several, and one predicate to push down"),
    RuleStep(push_down_filter, "fewer rows reach every later operator; makes joins hash instead of cross"),
    RuleStep(
        outer_to_inner, "rows with NULLs that a filter drops are not made; conditions reach further into inner joins"
    ),
    RuleStep(push_filter_into_join, "fewer rows are held by joins of relations; makes them hash instead of cross"),
    RuleStep(split_join_condition, "what one side decides is decided before its rows are held"),
    RuleStep(drop_implied_pairs, "what is equal anyway when rows meet need not be hashed"),
    RuleStep(push_down_summary, "one row of each group is held by a join instead of all; before joins are ordered"),
    RuleStep(merge_joins, "a relation joined with several others is held once; before joins are ordered"),
    RuleStep(merge_excepts, "what several EXCEPT leave out is left out at once, so rows are held once"),
    RuleStep(order_joins, "small intermediate results first, by what was measured of the streams", asks="known"),
    RuleStep(push_down_distinct, "copies of a row need not be joined, where finding them costs less", asks="known"),
    RuleStep(eliminate_distinct, "removing duplicates costs a state for every row"),
    RuleStep(eliminate_window, "events that are asked for as events need no windows"),
    RuleStep(merge_projects, "one projection per batch; after filters have passed through them"),
    RuleStep(
        push_down_project,
        "computed columns below UNION run before the merge copies rows, below windows before they hold them",
    ),
    RuleStep(merge_windows, "windows of one length hold the rows of several streams once; after columns were computed"),
    RuleStep(tumble_slides, "windows that do not overlap need no window: one state per key"),
    RuleStep(pane_slides, "windows that overlap share panes: window / pane values instead of all rows"),
    RuleStep(
        merge_aggregates,
        "aggregates of one window keep its rows once; after slides have found a window they need not",
        asks="why_slow",
    ),
    RuleStep(eliminate_filter, "conditions that became constant"),
    RuleStep(fuse_events, "instances go from operator to operator without being written out; before pruning"),
    RuleStep(prune_columns, "columns nobody reads are not read; after predicates have settled", whole_plan=True),
    RuleStep(eliminate_project, "what pruning left without effect"),
)

RULE_NAMES = tuple(step.name for step in OPTIMIZE)

__all__ = ["OPTIMIZE", "RULE_NAMES", "RuleStep", "Trace", "WhySlow", "run_rules"]
