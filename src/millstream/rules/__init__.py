"""Rewrites that keep a plan's meaning and lower its cost. One rule is one file, one function, one fixture."""

from millstream.rules.bucket_bands import bucket_bands
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
    RuleStep(push_down_filter, "fewer rows reach later operators; joins become hash joins instead of cross joins"),
    RuleStep(
        outer_to_inner, "rows with NULLs that a filter drops are not made; conditions reach further into inner joins"
    ),
    RuleStep(push_filter_into_join, "joins of relations keep fewer rows, and become hash joins instead of cross joins"),
    RuleStep(split_join_condition, "conditions on one side are tested before its rows are kept"),
    RuleStep(drop_implied_pairs, "columns that are always equal when rows join need not be hashed"),
    RuleStep(push_down_summary, "a join keeps one row of each group instead of all; before joins are ordered"),
    RuleStep(merge_joins, "a relation joined with several others is kept once; before joins are ordered"),
    RuleStep(merge_excepts, "several EXCEPT become one, so rows are kept once"),
    RuleStep(order_joins, "small intermediate results first, from statistics of the streams", asks="known"),
    RuleStep(push_down_distinct, "duplicates need not be joined, if removing them costs less", asks="known"),
    RuleStep(
        bucket_bands, "joins by a band of whole numbers become hash joins; after other conditions became their keys"
    ),
    RuleStep(eliminate_distinct, "removing duplicates needs state for every row"),
    RuleStep(eliminate_window, "events that are only used as events need no windows"),
    RuleStep(merge_projects, "one projection per batch; after filters have passed through them"),
    RuleStep(
        push_down_project,
        "columns are computed below UNION before the merge copies rows, and below windows before they keep rows",
    ),
    RuleStep(merge_windows, "windows of one length keep the rows of several streams once; after columns were computed"),
    RuleStep(tumble_slides, "windows that do not overlap need no window: one state per key"),
    RuleStep(pane_slides, "windows that overlap share panes: window / pane values instead of all rows"),
    RuleStep(
        merge_aggregates,
        "aggregates of one window keep its rows once; after the rules for slides",
        asks="why_slow",
    ),
    RuleStep(eliminate_filter, "conditions that are constant by now"),
    RuleStep(fuse_events, "operators on events become one automaton; before pruning"),
    RuleStep(prune_columns, "unused columns are not read; after predicates have settled", whole_plan=True),
    RuleStep(eliminate_project, "projections that have no effect after pruning"),
)

RULE_NAMES = tuple(step.name for step in OPTIMIZE)

__all__ = ["OPTIMIZE", "RULE_NAMES", "RuleStep", "Trace", "WhySlow", "run_rules"]
