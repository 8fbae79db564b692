"""Events that follow each other: the papers' Examples 4 and 10 over quotes, and their Double-Top pattern.

    python benchmarks/events.py [--rows 10000000] [--symbols 1000] [--only examples,symbols,double_top]

examples: events/s on one core, by processor time, from Arrow batches to fetched results. symbols: the same with a
hundred times as many symbols, which should cost the same; they take turns, and the best of five counts. double_top:
five turning points A to E of a price, asked for in five ways that give the same answers. Machines are noisy: read the
ratios.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa

import millstream as ms

BATCH = 1 << 18
STOCK = "CREATE STREAM Stock (Name VARCHAR, Price DOUBLE, Volume INT, t BIGINT) ORDER BY t"

EXAMPLES = {
    "Example 4: rising for at least 30 minutes": """
        SELECT Name, Price_1, Price FROM FILTER{DUR >= 1800000} (
            Stock FOLD{$2.Name = $.Name, $2.Price > $.Price, } Stock)""",
    "Example 10: falling after a large trade, then up 5 %": """
        SELECT Name, MaxPrice, MinPrice, Price AS FinalPrice FROM FILTER{Price > 1.05 * MinPrice_1} (
            FILTER{DUR >= 600000} (
                SELECT Name, Price_1 AS MaxPrice, Price AS MinPrice
                FROM FILTER{Volume > 10000}(Stock) FOLD{$2.Name = $.Name, $2.Price < $.Price, } Stock)
            NEXT{$2.Name = $1.Name} Stock)""",
}


def quotes(rows: int, symbols: int, seed: int = 7) -> list[pa.RecordBatch]:
    """Random walks of prices; each symbol has a quote every six minutes or so, times are in milliseconds."""
    rng = np.random.default_rng(seed)
    names = pa.array([f"S{number:05}" for number in range(symbols)])
    prices = np.full(symbols, 100.0)
    batches = []
    for begin in range(0, rows, BATCH):
        size = min(BATCH, rows - begin)
        symbol = rng.integers(0, symbols, size)
        moves = rng.normal(0, 3, size).round(2)
        order = np.argsort(symbol, kind="stable")
        walked = np.empty(size)
        starts = np.flatnonzero(np.diff(symbol[order], prepend=-1))
        sums = np.cumsum(moves[order])
        before = np.repeat(sums[starts] - moves[order][starts], np.diff(np.append(starts, size)))
        walked[order] = prices[symbol[order]] + sums - before
        prices[symbol[order[np.append(starts[1:], size) - 1]]] = walked[order[np.append(starts[1:], size) - 1]]
        volume = rng.integers(1, 12_000, size)
        time_ = np.arange(begin, begin + size) * max(1, 360_000 // symbols)
        batches.append(
            pa.RecordBatch.from_arrays(
                [
                    names.take(pa.array(symbol)),
                    pa.array(walked.round(2)),
                    pa.array(volume, pa.int32()),
                    pa.array(time_),
                ],
                names=["Name", "Price", "Volume", "t"],
            )
        )
    return batches


def run(text: str, batches: list[pa.RecordBatch]) -> tuple[float, int]:
    """Events a second of processor time behind the first batch, which warms up; and how many were found."""
    with ms.connect(jit="on", threads=1) as db:
        db.execute(STOCK)
        query = db.sql(text)
        db.push("Stock", batches[0])
        found = query.fetch().num_rows
        began = time.process_time()
        for batch in batches[1:]:
            db.push("Stock", batch)
            found += query.fetch().num_rows
        spent = time.process_time() - began
        return sum(map(len, batches[1:])) / spent, found


def examples(options: argparse.Namespace) -> None:
    print(f"{options.rows:,} quotes of {options.symbols:,} symbols")
    batches = quotes(options.rows, options.symbols)
    for name, text in EXAMPLES.items():
        rate, found = run(text, batches)
        print(f"  {name:<54} {rate / 1e6:6.2f} M events/s   ({found:,} found; wanted: 5)", flush=True)


def symbols(options: argparse.Namespace) -> None:
    rows = min(options.rows, 4_000_000)
    print(f"{rows:,} quotes, by how many symbols there are")
    batches = {many: quotes(rows, many) for many in (100, 1_000, 10_000)}
    for name, text in EXAMPLES.items():
        rates = dict.fromkeys(batches, 0.0)
        for _ in range(5):
            for many, given in batches.items():
                rates[many] = max(rates[many], run(text, given)[0])
        told = ", ".join(f"{many:,}: {rate / 1e6:.2f} M/s" for many, rate in rates.items())
        print(f"  {name:<54} {told}; {rates[100] / rates[10_000]:.2f}x the cost (wanted: at most 1.3)", flush=True)


_QUOTES = "(SELECT Name, Price FROM Stock)"
_UP, _DOWN = (f"FOLD{{$2.Name = $.Name, $2.Price {sign} $.Price, }} {_QUOTES}" for sign in "><")
_SAME = "NEXT{$2.Name = $1.Name}"
_TURN = """SELECT Name_1 AS Name, Price_2 AS Price FROM FILTER{Price %s Price_2} (
    (SELECT Name AS Name_1, Price AS Price_2 FROM FILTER{Price %s Price_1} (Quotes NEXT{$2.Name = $1.Name} Quotes))
    NEXT{$2.Name = $1.Name_1} Quotes)"""

MU = f"""
    SELECT Name, A, B, C, D, E FROM FILTER{{Price > E}} (
      (SELECT Name AS Stock, A, B, C, D, Price AS E FROM FILTER{{Price < A}} (
        (SELECT Name, A, B, C, Price AS D, Price FROM FILTER{{Price > B * 0.9 AND Price < B * 1.1}} (
          (SELECT Name, A, B, Price AS C, Price FROM FILTER{{Price > A * 0.9 AND Price < A * 1.1}} (
            (SELECT Name, A, Price AS B, Price FROM FILTER{{Price > A * 1.2}} (
              (SELECT Name, Price AS A, Price FROM FILTER{{Price < Price_1}} ({_QUOTES} {_SAME} {_QUOTES}))
              {_UP}))
            {_DOWN}))
          {_UP}))
        {_DOWN}))
      NEXT{{$2.Name = $1.Stock}} {_QUOTES})"""

NEXT_OF_TURNS = """
    SELECT Name, A, B, C, D, Price AS E FROM FILTER{Price < A} (
      (SELECT Name AS N4, A, B, C, Price AS D FROM FILTER{Price > B * 0.9 AND Price < B * 1.1} (
        (SELECT Name AS N3, A, B, Price AS C FROM FILTER{Price > A * 0.9 AND Price < A * 1.1} (
          (SELECT Name AS N2, A, Price AS B FROM FILTER{Price > A * 1.2} (
            (SELECT Name AS N1, Price AS A FROM FILTER{low}(Turns)) NEXT{$2.Name = $1.N1} Turns))
          NEXT{$2.Name = $1.N2} Turns))
        NEXT{$2.Name = $1.N3} Turns))
      NEXT{$2.Name = $1.N4} Turns)"""

ROW_PATTERN = """
    SELECT * FROM Stock MATCH_RECOGNIZE (
      PARTITION BY Name ORDER BY t
      MEASURES A.Price AS A, LAST(UP.Price) AS B, LAST(DOWN.Price) AS C, LAST(UP2.Price) AS D, LAST(DOWN2.Price) AS E
      AFTER MATCH SKIP TO NEXT ROW
      PATTERN (S A UP+ DOWN+ UP2+ DOWN2+ UP3)
      DEFINE A AS Price < PREV(Price), UP AS Price > PREV(Price),
        DOWN AS Price < PREV(Price) AND LAST(UP.Price) > A.Price * 1.2,
        UP2 AS Price > PREV(Price) AND LAST(DOWN.Price) > A.Price * 0.9 AND LAST(DOWN.Price) < A.Price * 1.1,
        DOWN2 AS Price < PREV(Price)
          AND LAST(UP2.Price) > LAST(UP.Price) * 0.9 AND LAST(UP2.Price) < LAST(UP.Price) * 1.1,
        UP3 AS Price > PREV(Price) AND LAST(DOWN2.Price) < A.Price)"""

_DIFFERENCES = """
    CREATE STREAM StockDiff AS RSTREAM (SELECT S.t, S.Name, S.Price, S.Price - P.Price AS pdiff
      FROM Stock [NOW] AS S, Stock [PARTITION BY Name ROWS 2] AS P WHERE S.Name = P.Name AND S.t > P.t);
    CREATE STREAM Extrema AS RSTREAM (SELECT P.t AS at, P.Name, P.Price, P.pdiff
      FROM StockDiff [NOW] AS S, StockDiff [PARTITION BY Name ROWS 2] AS P
      WHERE S.Name = P.Name AND S.pdiff * P.pdiff < 0.0)"""
_SELF_JOIN = """
    CREATE STREAM Extrema AS ISTREAM (SELECT S2.t AS at, S2.Name, S2.Price, S2.Price - S1.Price AS pdiff
      FROM Stock [PARTITION BY Name ROWS 3] AS S1, Stock [PARTITION BY Name ROWS 3] AS S2,
           Stock [PARTITION BY Name ROWS 3] AS S3
      WHERE S1.Name = S2.Name AND S2.Name = S3.Name AND (S2.Price - S1.Price) * (S3.Price - S2.Price) < 0.0
        AND S1.t < S2.t AND S2.t < S3.t)"""
_STATES = """
    CREATE VIEW ExtremaCounter AS SELECT Name, count(*) AS seqNo FROM Extrema [RANGE UNBOUNDED] GROUP BY Name;
    CREATE STREAM ExtremaSeq AS RSTREAM (SELECT E.Name, E.Price, E.pdiff, C.seqNo AS seq, C.seqNo - 1 AS prevSeq
      FROM Extrema [NOW] AS E, ExtremaCounter AS C WHERE E.Name = C.Name);
    CREATE VIEW stateA AS SELECT Name, Price AS A, seq FROM ExtremaSeq [RANGE UNBOUNDED] WHERE pdiff < 0.0;
    CREATE STREAM B AS RSTREAM (SELECT E.Name, E.Price AS B, A.A, E.seq FROM ExtremaSeq [NOW] AS E, stateA AS A
      WHERE E.Name = A.Name AND E.prevSeq = A.seq AND E.Price > A.A * 1.2);
    CREATE VIEW stateB AS SELECT * FROM B [RANGE UNBOUNDED];
    CREATE STREAM C AS RSTREAM (SELECT E.Name, E.Price AS C, B.B, B.A, E.seq FROM ExtremaSeq [NOW] AS E, stateB AS B
      WHERE E.Name = B.Name AND E.prevSeq = B.seq AND E.Price > B.A * 0.9 AND E.Price < B.A * 1.1);
    CREATE VIEW stateC AS SELECT * FROM C [RANGE UNBOUNDED];
    CREATE STREAM D AS RSTREAM (SELECT E.Name, E.Price AS D, C.C, C.B, C.A, E.seq
      FROM ExtremaSeq [NOW] AS E, stateC AS C
      WHERE E.Name = C.Name AND E.prevSeq = C.seq AND E.Price > C.B * 0.9 AND E.Price < C.B * 1.1);
    CREATE VIEW stateD AS SELECT * FROM D [RANGE UNBOUNDED]"""
_FOUND = """
    RSTREAM (SELECT E.Name, D.A, D.B, D.C, D.D, E.Price AS E FROM ExtremaSeq [NOW] AS E, stateD AS D
      WHERE E.Name = D.Name AND E.prevSeq = D.seq AND E.Price < D.A)"""

_TURNS = f"""
    CREATE STREAM Quotes AS SELECT Name, Price FROM Stock;
    CREATE STREAM Turns AS SELECT Name, Price, low, count(*) OVER (PARTITION BY Name ROWS UNBOUNDED PRECEDING) AS seq
      FROM (SELECT *, TRUE AS low FROM ({_TURN % (">", "<")})
            UNION ALL SELECT *, FALSE AS low FROM ({_TURN % ("<", ">")}))"""

DOUBLE_TOP = {
    "FOLD": ("", MU),
    "NEXT over turning points": (_TURNS, NEXT_OF_TURNS),
    "MATCH_RECOGNIZE": ("", ROW_PATTERN),
    "CQL, joins of neighbours": (_DIFFERENCES + ";" + _STATES, _FOUND),
    "CQL, three-way self-join": (_SELF_JOIN + ";" + _STATES, _FOUND),
}


def double_top(options: argparse.Namespace) -> None:
    """A low A; up by a fifth to a high B; down to a low C near A; up to a high D near B; down to a low E below A."""
    rows, many = min(options.rows, 112_635), 24
    print(f"Double-Top over {rows:,} quotes of {many} symbols")
    batches = daily(rows, many)
    answers: dict[str, list[tuple[object, ...]]] = {}
    rates = {}
    for name, (before, text) in DOUBLE_TOP.items():
        with ms.connect(jit="on", threads=1) as db:
            db.execute(STOCK)
            if before:
                db.execute(before)
            query = db.sql(text)
            db.push("Stock", batches[0])
            found = query.fetch().to_pylist()
            began = time.process_time()
            for batch in batches[1:]:
                db.push("Stock", batch)
                found += query.fetch().to_pylist()
            rates[name] = sum(map(len, batches[1:])) / (time.process_time() - began)
            db.finish()
            found += query.fetch().to_pylist()
        answers[name] = sorted(tuple(row[column] for column in ("Name", *"ABCDE")) for row in found)
        first = answers["FOLD"]
        assert answers[name] == first, (name, len(answers[name]), len(first))
        told = f"{rates['FOLD'] / rates[name]:.1f}x slower than FOLD" if name != "FOLD" else "wanted: 4x the self-join"
        print(f"  {name:<28} {rates[name] / 1e3:9,.0f} K events/s   ({len(first):,} found; {told})", flush=True)


def daily(rows: int, symbols: int, seed: int = 7) -> list[pa.RecordBatch]:
    """Prices of each symbol day by day, which never stay the same: smooth waves, with some noise."""
    rng = np.random.default_rng(seed)
    days = rows // symbols
    steps = rng.normal(0, 1.0, (days, symbols))
    window = 4
    smooth = np.stack([np.convolve(steps[:, s], np.ones(window) / window, "same") for s in range(symbols)], axis=1)
    waves = 60 + 15 * np.sin(np.arange(days)[:, None] / rng.uniform(4, 12, symbols) + rng.uniform(0, 6, symbols))
    prices = waves + smooth
    names = np.array([f"S{number:02}" for number in range(symbols)])
    time_ = np.arange(days * symbols)
    flat, who = prices.reshape(-1), np.tile(names, days)
    return [
        pa.RecordBatch.from_arrays(
            [pa.array(who[at : at + 8_192]), pa.array(flat[at : at + 8_192]),
             pa.array(np.ones(len(flat[at : at + 8_192]), dtype=np.int32)), pa.array(time_[at : at + 8_192])],
            names=["Name", "Price", "Volume", "t"],
        )
        for at in range(0, len(flat), 8_192)
    ]  # fmt: skip


PARTS = {"examples": examples, "symbols": symbols, "double_top": double_top}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--symbols", type=int, default=1_000)
    parser.add_argument("--only", default=",".join(PARTS))
    options = parser.parse_args()
    for part in options.only.split(","):
        PARTS[part](options)


if __name__ == "__main__":
    main()
