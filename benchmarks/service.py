"""Load of the service on docs/classify.md: requests a second, and how long 50 users wait for their answers.

    python CLONE/benchmarks/service.py new.csv 1 service

In the folder that has service.py: it is started, and each user sends so many texts of the file's first column, waits for their labels
and sends the next, 2,000 requests together. Users and service share the cores that this command may use; "CPU" is the service's own time
for a request.
"""

import asyncio
import csv
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil

USERS, REQUESTS, PORT = 50, 2000, 8765


async def user(lists: list[list[str]], waits: list[float]) -> None:
    for _ in range(1200):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
            break
        except OSError:
            await asyncio.sleep(0.1)
    for texts in lists:
        body, began = json.dumps(texts), time.perf_counter()
        head = f"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        writer.write(f"{head}\r\n\r\n{body}".encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer)
        assert answer.startswith(b"HTTP/1.1 200") and length, answer
        await reader.readexactly(int(length[1]))
        waits.append(1e3 * (time.perf_counter() - began))
    writer.close()


async def load(users: list[list[list[str]]]) -> list[float]:
    waits: list[float] = []
    await asyncio.gather(*(user(lists, waits) for lists in users))
    return waits


def main(file: str, count: str, service: str) -> None:
    rows = [row[0] for row in csv.reader(Path(file).read_text(encoding="utf-8").splitlines())][1:]
    lists = [[rows[(n + k) % len(rows)] for k in range(int(count))] for n in range(REQUESTS)]
    command = f"{sys.executable} -m uvicorn {service}:app --port {PORT} --log-level warning --loop asyncio --http h11"
    served = subprocess.Popen(command.split())
    try:
        cpu = psutil.Process(served.pid).cpu_times
        asyncio.run(load([lists[:2]] * USERS))
        began, used = time.perf_counter(), sum(cpu()[:2])
        waits = asyncio.run(load([lists[n::USERS] for n in range(USERS)]))
        took, used = time.perf_counter() - began, sum(cpu()[:2]) - used
    finally:
        served.terminate()
    middle, late = np.percentile(waits, [50, 99])
    print(f"{REQUESTS / took:.0f} requests a second; median {middle:.0f} ms, 99 % below {late:.0f} ms; "
          f"CPU {1e3 * used / REQUESTS:.1f} ms")  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
