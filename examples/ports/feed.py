"""Sends bids to a port, one JSON object per line: python feed.py [port [rows [rows per second]]]."""

import datetime as dt
import json
import random
import socket
import sys
import time


def connect(port: int, seconds: float = 30) -> socket.socket:
    """Connect as soon as somebody listens."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if time.monotonic() > give_up:
                sys.exit(f"nobody listens on port {port}; start the pipeline first")
            time.sleep(0.1)


def main(port: int = 4445, rows: int = 100, rate: float = 20.0) -> None:
    chance = random.Random(7)
    start = dt.datetime(2026, 1, 5, 9)
    with connect(port) as server:
        for number in range(rows):
            # up to a second out of order: the stream's slack is two
            moment = start + dt.timedelta(seconds=number - chance.random())
            bid = {
                "item": chance.randrange(5),
                "bidder": f"b{chance.randrange(20)}",
                "price": round(chance.uniform(1, 100), 2),
                "bid_time": moment.isoformat(),
            }
            server.sendall(json.dumps(bid).encode() + b"\n")
            time.sleep(1 / rate if rate else 0)


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, int, float), sys.argv[1:], strict=False)))
