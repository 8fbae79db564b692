"""The loop that advances threads, and what follows the labels they left; kernel source, see `jit`.

A thread is a record of `LANES` numbers. The threads of a partition stand in order of preference, all having taken the
same rows: those from where the attempt began up to the one before `AT`. A cell tells how a thread labelled a row, and
which cell it wrote before: cells are shared by the threads that part later.
"""

from __future__ import annotations

from typing import Any

from millstream.kernels.patterns.cell_loops import (
    FOUND,
    M_CELL,
    M_END,
    M_KIND,
    M_NUMBER,
    M_ROW,
    M_SEQ,
    M_SLOT,
    M_START,
    M_TIME,
    MATCH,
    NO_MATCH,
    TIMEOUT,
)
from millstream.kernels.patterns.thread_parts import (
    AHEAD,
    BOUNDED,
    CELLS,
    EACH,
    EMPTY,
    LANES,
    REPORTS,
    SEEK,
    SHARED,
    SKIP,
    TIMEOUTS,
    TOGETHER,
    UNMATCHED,
    check,
    is_target,
    take,
)

LAST_MOMENT = 9223372036854775806
FOREVER = 9223372036854775807

# What is known of a partition: where the attempt began, what to try next (-1: the next row that comes), the last row
# that was taken and how many, the matches so far, the preferred match so far (whether there is one, its last row and
# its last cell), its threads, the last row that belongs to a match, whether the deadline is over, the row that a match
# is sought for and how many rows before the attempt, and the deadline that is to be waited for.
START, AT, TAKEN, COUNT, NUMBER, HAS, BEST_END, BEST_CELL, THREADS, N, COVERED, LATE, ORIGIN, OFFSET, DUE = range(15)
SLOT = 15

# Where to go on after a pause, and how full arrays are.
AT_SLOT, NEXT_ROW, CLOCK, NUMBERED, LIMIT, IS_PENDING, IS_ENDED, IS_RESUMED = range(8)
POOL_USED, CELLS_USED, FOUND_USED, IDS = range(8, 12)
META = 12

DONE, POOL_FULL, THREADS_FULL, CELLS_FULL, FOUND_FULL, NOWHERE, SAME_ROW = range(7)
TAKE, TRY, SPLIT, JUMP, AT_FIRST, AT_END, CHECK, ACCEPT, FAIL = range(9)
ROW, FINISH, TOO_LATE = range(3)


def is_over(start: int, within: int, upto: int) -> bool:
    """Whether no row can come any more that is at most `within` after the time `start`."""
    if start >= LAST_MOMENT - within:
        return False
    return upto == FOREVER or (upto > start and upto - start > within)


def mixed(value: int) -> int:
    """A number below 2**31 that stands for any other, so that few of them share one; no product leaves 64 bits."""
    return (((value ^ (value >> 32)) & 2147483647) * 2654435769 >> 16) & 2147483647


def note(
    found: Any, meta: Any, slot: int, start: int, end: int, cell: int, number: int, time: int, seq: int, kind: int,
    row: int,
) -> None:  # fmt: skip
    """Add to what was found."""
    m = meta[FOUND_USED] * FOUND
    found[m + M_SLOT] = slot
    found[m + M_START] = start
    found[m + M_END] = end
    found[m + M_CELL] = cell
    found[m + M_NUMBER] = number
    found[m + M_TIME] = time
    found[m + M_SEQ] = seq
    found[m + M_KIND] = kind
    found[m + M_ROW] = row
    meta[FOUND_USED] += 1


def run(
    touched: Any, first_new: Any, upto: int, time: Any, seq: Any, next_: Any, prev: Any, ahead: Any, last: Any,
    cut: Any, slots: Any, pool: Any, meta: Any, now: Any, fnow: Any, then: Any, fthen: Any, rec: Any, frec: Any,
    fresh: Any, cells: Any, stack: Any, seen: Any, head: Any, link: Any, code: Any, relevant: Any, limits: Any,
    found: Any, env: Any,
) -> int:  # fmt: skip
    """Try new rows of the partitions `touched`, beginning with `first_new` (-1: none), and see what time has decided.

    `ahead` links each row with the furthest that must be there before it is tried.

    Returns DONE, or what there is not enough of: then it can be called again with more.
    """
    within = limits[0]
    most = limits[1]
    capacity = len(then) // LANES
    while meta[AT_SLOT] < len(touched):
        k = meta[AT_SLOT]
        s = touched[k] * SLOT
        if meta[POOL_USED] + capacity > len(pool) // LANES:
            return POOL_FULL
        start = slots[s + START]
        at = slots[s + AT]
        count = slots[s + COUNT]
        n = slots[s + N]
        base = slots[s + THREADS] * LANES
        for i in range(n * LANES):
            now[i] = pool[base + i]
        x = first_new[k]
        clock = 0
        numbered = 0
        limit = -1
        pending = False
        ended = False
        if meta[IS_RESUMED]:
            meta[IS_RESUMED] = 0
            x = meta[NEXT_ROW]
            clock = meta[CLOCK]
            numbered = meta[NUMBERED]
            limit = meta[LIMIT]
            pending = meta[IS_PENDING] != 0
            ended = meta[IS_ENDED] != 0
        status = DONE
        while True:
            # All that can be decided at this moment.
            while start >= 0 or (SEEK and ended and slots[s + ORIGIN] >= 0):
                if n == 0:
                    # The attempt is over: with the best match, or with none.
                    room = 2
                    if EACH:
                        room += count + slots[s + OFFSET]
                    if meta[FOUND_USED] + room > len(found) // FOUND:
                        status = FOUND_FULL
                        break
                    following = -1
                    if start >= 0:
                        following = next_[start]
                        if TOGETHER and slots[s + HAS] == 0:
                            following = at
                    if start >= 0 and slots[s + HAS]:
                        slots[s + NUMBER] += 1
                        end = slots[s + BEST_END]
                        if EMPTY or EACH or end >= 0:
                            row = slots[s + ORIGIN] if EACH else start
                            note(
                                found, meta, touched[k], start, end, slots[s + BEST_CELL], slots[s + NUMBER], clock,
                                numbered, MATCH, row,
                            )  # fmt: skip
                        if end >= 0:
                            slots[s + COVERED] = max(slots[s + COVERED], end)
                            if SKIP == 0:
                                following = next_[end]
                            if SKIP >= 2:
                                following = -1
                                c = slots[s + BEST_CELL]
                                while c >= 0:
                                    if is_target(cells[3 * c + 2] >> 1):
                                        following = cells[3 * c + 1]
                                        if SKIP == 3:
                                            break
                                    c = cells[3 * c]
                                if following < 0:
                                    return NOWHERE
                                if following == start:
                                    return SAME_ROW
                        if EACH:
                            if SKIP == 1 or end < 0:
                                following = next_[slots[s + ORIGIN]]
                            i = next_[slots[s + ORIGIN]]
                            while i != following:
                                note(found, meta, touched[k], i, -1, -1, 0, clock, numbered, NO_MATCH, i)
                                i = next_[i]
                            slots[s + ORIGIN] = following
                            slots[s + OFFSET] = 0
                    elif (
                        SEEK and start >= 0 and (most < 0 or slots[s + OFFSET] < most) and not (ended and following < 0)
                    ):
                        slots[s + OFFSET] += 1
                    elif EACH or (UNMATCHED and start > slots[s + COVERED]):
                        row = slots[s + ORIGIN] if EACH else start
                        note(found, meta, touched[k], row, -1, -1, 0, clock, numbered, NO_MATCH, row)
                        if EACH:
                            following = next_[row]
                            slots[s + ORIGIN] = following
                            slots[s + OFFSET] = 0
                    start = following
                    at = following
                    count = 0
                    slots[s + HAS] = 0
                    slots[s + LATE] = 0
                    if start >= 0:
                        n = 1
                        for i in range(LANES):
                            now[i] = fresh[i]
                        if TOGETHER:
                            now[2] = start
                    if TOGETHER:
                        slots[s + ORIGIN] = -1
                    continue
                phase = ROW
                if EACH and most >= 0 and count + slots[s + OFFSET] > most and slots[s + LATE] == 0:
                    phase = TOO_LATE
                elif 0 <= at <= limit:
                    if BOUNDED and slots[s + LATE] == 0 and at != start and time[at] - time[start] > within:
                        phase = TOO_LATE
                    elif AHEAD and not ended:
                        i = ahead[at]
                        if i < 0 or i > limit:
                            break
                elif pending or (
                    # Rows that waited for others are tried at the end, behind which every deadline is.
                    ended and BOUNDED and start >= 0 and slots[s + LATE] == 0 and is_over(time[start], within, upto)
                ):
                    phase = TOO_LATE
                elif ended:
                    phase = FINISH
                else:
                    break
                if TIMEOUTS and phase == TOO_LATE and meta[FOUND_USED] + 1 > len(found) // FOUND:
                    status = FOUND_FULL
                    break
                if TOGETHER and phase == ROW and slots[s + HAS] == 0 and now[(n - 1) * LANES + 2] != at:
                    # What begins here is less preferred than what began before.
                    if n >= capacity:
                        status = THREADS_FULL
                        break
                    for i in range(LANES):
                        now[n * LANES + i] = fresh[i]
                    now[n * LANES + 2] = at
                    n += 1
                # Every thread in order of preference; those that live on are written to `then`.
                p = at if phase == ROW else -1
                if REPORTS:
                    meta[CLOCK] = clock
                    meta[NUMBERED] = numbered
                low = -1
                high = FOREVER
                if EACH:
                    low = slots[s + ORIGIN]
                    if AHEAD and most >= 0:
                        high = low
                        for _ in range(most):
                            if next_[high] >= 0:
                                high = next_[high]
                number = slots[s + NUMBER] + 1
                had, had_end, had_cell = slots[s + HAS], slots[s + BEST_END], slots[s + BEST_CELL]
                had_start = slots[s + ORIGIN]
                ids = meta[IDS] + 1
                row_mark = ids
                mark_taken = ids
                m = 0
                t = 0
                while t < n:
                    o = t * LANES
                    if not SHARED:
                        ids += 1
                    mark = row_mark if SHARED else ids
                    stack[0] = now[o] * 2
                    top = 1
                    while top > 0:
                        top -= 1
                        entry = stack[top]
                        pc = entry >> 1
                        taken = entry & 1
                        if seen[entry] == (mark_taken if taken else mark):
                            continue
                        seen[entry] = mark_taken if taken else mark
                        op = code[4 * pc]
                        stays = False
                        if op <= TRY:
                            if taken:
                                stays = True
                            else:
                                holds = False
                                if phase == ROW and slots[s + LATE] == 0:
                                    holds = take(
                                        code[4 * pc + 1] >> 1, now, fnow, o, rec, frec, p, start, number, low, high,
                                        cells, env,
                                    )  # fmt: skip
                                if holds:
                                    rec[1] = now[o + 1]
                                    if TOGETHER:
                                        rec[2] = now[o + 2]
                                    if CELLS:
                                        c = meta[CELLS_USED]
                                        if 3 * c + 3 > len(cells):
                                            status = CELLS_FULL
                                            break
                                        cells[3 * c] = now[o + 1]
                                        cells[3 * c + 1] = p
                                        cells[3 * c + 2] = code[4 * pc + 1]
                                        rec[1] = c
                                        meta[CELLS_USED] = c + 1
                                    if not SHARED:
                                        ids += 1
                                        mark_taken = ids
                                    stack[top] = code[4 * pc + 3] * 2 + 1
                                    top += 1
                                elif op == TRY:
                                    stack[top] = code[4 * pc + 2] * 2
                                    top += 1
                        elif op == JUMP:
                            stack[top] = code[4 * pc + 3] * 2 + taken
                            top += 1
                        elif op == SPLIT:
                            stack[top] = code[4 * pc + 3] * 2 + taken
                            stack[top + 1] = code[4 * pc + 2] * 2 + taken
                            top += 2
                        elif op == AT_FIRST:
                            begun = now[o + 2] if TOGETHER else start
                            if p == begun and not taken and prev[p] < 0 and not cut[touched[k]]:
                                stack[top] = code[4 * pc + 3] * 2
                                top += 1
                        elif op == AT_END:
                            if taken or phase == TOO_LATE:
                                stays = True
                            elif phase == FINISH:
                                stack[top] = code[4 * pc + 3] * 2
                                top += 1
                        elif op == CHECK:
                            if taken:
                                holds = check(code[4 * pc + 1], rec, frec, 0, start, number, low, high, cells, env)
                            else:
                                holds = check(code[4 * pc + 1], now, fnow, o, start, number, low, high, cells, env)
                            if holds:
                                stack[top] = code[4 * pc + 3] * 2 + taken
                                top += 1
                        elif op == ACCEPT:
                            # What is less preferred does not matter any more.
                            slots[s + HAS] = 1
                            if TOGETHER:
                                slots[s + ORIGIN] = now[o + 2]
                            if taken:
                                slots[s + BEST_END] = p
                                slots[s + BEST_CELL] = rec[1]
                            else:
                                slots[s + BEST_END] = slots[s + TAKEN]
                                if count == 0 or (TOGETHER and now[o + 2] == p):
                                    slots[s + BEST_END] = -1
                                slots[s + BEST_CELL] = now[o + 1]
                            top = 0
                            t = n
                        if stays:
                            # A thread that stands here and knows the same already goes every way that this one can.
                            hashed = mixed(pc)
                            if not SHARED:
                                for i in range(1, LANES):
                                    if relevant[pc * LANES + i]:
                                        hashed = mixed(hashed ^ (rec[i] if taken else now[o + i]))
                            bucket = 2 * (hashed & (len(head) // 2 - 1))
                            other = head[bucket + 1] if head[bucket] == row_mark else -1
                            before = other
                            while other >= 0:
                                same = link[2 * other + 1] == hashed and then[other * LANES] == pc
                                if not same:
                                    other = link[2 * other]
                                    continue
                                for i in range(1, LANES):
                                    if relevant[pc * LANES + i]:
                                        mine = rec[i] if taken else now[o + i]
                                        if mine != then[other * LANES + i]:
                                            same = False
                                            break
                                if same:
                                    break
                                other = link[2 * other]
                            if other < 0:
                                if m >= capacity:
                                    status = THREADS_FULL
                                    break
                                then[m * LANES] = pc
                                for i in range(1, LANES):
                                    then[m * LANES + i] = rec[i] if taken else now[o + i]
                                link[2 * m] = before
                                link[2 * m + 1] = hashed
                                head[bucket] = row_mark
                                head[bucket + 1] = m
                                m += 1
                    if status != DONE:
                        break
                    t += 1
                meta[IDS] = ids
                if status != DONE:
                    slots[s + HAS], slots[s + BEST_END], slots[s + BEST_CELL] = had, had_end, had_cell
                    slots[s + ORIGIN] = had_start
                    break
                if phase == ROW:
                    slots[s + TAKEN] = p
                    count += 1
                    at = next_[p]
                elif phase == TOO_LATE:
                    pending = False
                    slots[s + LATE] = 1
                    if TIMEOUTS and m == 0 and slots[s + HAS] == 0 and count > 0:
                        note(
                            found, meta, touched[k], start, slots[s + TAKEN], now[1], 0, clock, numbered, TIMEOUT,
                            start,
                        )  # fmt: skip
                now, then = then, now
                fnow, fthen = fthen, fnow
                n = m
                if TOGETHER:
                    if n > 0:
                        start = now[2]
                    elif slots[s + HAS]:
                        start = slots[s + ORIGIN]
            if status != DONE:
                break
            # The next moment at which something can be decided.
            if x >= 0:
                if at < 0:
                    at = x
                if start < 0:
                    start = x
                    count = 0
                    n = 1
                    for i in range(LANES):
                        now[i] = fresh[i]
                    if TOGETHER:
                        now[2] = x
                    if EACH and slots[s + ORIGIN] < 0:
                        slots[s + ORIGIN] = x
                        slots[s + OFFSET] = 0
                late = BOUNDED and at == x and start != x and slots[s + LATE] == 0 and time[x] - time[start] > within
                if late:
                    limit = prev[x]
                    clock = max(time[limit], time[start] + within + 1)
                    numbered = seq[limit]
                    pending = True
                else:
                    limit = x
                    clock = time[x]
                    numbered = seq[x]
                    x = next_[x]
            elif BOUNDED and start >= 0 and at < 0 and slots[s + LATE] == 0 and is_over(time[start], within, upto):
                limit = last[touched[k]]
                clock = max(time[limit], time[start] + within + 1)
                numbered = seq[limit]
                pending = True
            elif upto == FOREVER and not ended and (start >= 0 or (SEEK and slots[s + ORIGIN] >= 0)):
                ended = True
                limit = last[touched[k]]
                clock = LAST_MOMENT
                numbered = seq[limit]
            else:
                break
        slots[s + START] = start
        slots[s + AT] = at
        slots[s + COUNT] = count
        slots[s + N] = n
        slots[s + THREADS] = meta[POOL_USED]
        base = meta[POOL_USED] * LANES
        for i in range(n * LANES):
            pool[base + i] = now[i]
        meta[POOL_USED] += n
        slots[s + DUE] = FOREVER
        if BOUNDED and start >= 0 and at < 0 and slots[s + LATE] == 0 and time[start] < LAST_MOMENT - within:
            slots[s + DUE] = time[start] + within
        if status != DONE:
            meta[NEXT_ROW] = x
            meta[CLOCK] = clock
            meta[NUMBERED] = numbered
            meta[LIMIT] = limit
            meta[IS_PENDING] = 1 if pending else 0
            meta[IS_ENDED] = 1 if ended else 0
            meta[IS_RESUMED] = 1
            return status
        meta[AT_SLOT] = k + 1
    return DONE
