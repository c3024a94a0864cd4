"""Fetches with one of three libraries, named as the argument: a whole file, a range, a miss."""

import asyncio
import hashlib
import os
import sys

BASE = "https://" + os.environ["HOST"]
WANTED = [("/large.bin", {}), ("/file.txt", {"Range": "bytes=3-5"}), ("/none", {})]


def show(status, body):
    print(status, hashlib.sha256(body).hexdigest())


def with_requests():
    import requests

    with requests.Session() as session:
        for path, headers in WANTED:
            answer = session.get(BASE + path, headers=headers, timeout=10)
            show(answer.status_code, answer.content)


def with_httpx():
    import httpx

    with httpx.Client(timeout=10) as client:
        for path, headers in WANTED:
            answer = client.get(BASE + path, headers=headers)
            show(answer.status_code, answer.content)


def with_aiohttp():
    import aiohttp

    async def fetch():
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for path, headers in WANTED:
                async with session.get(BASE + path, headers=headers) as answer:
                    show(answer.status, await answer.read())

    asyncio.run(fetch())


{"requests": with_requests, "httpx": with_httpx, "aiohttp": with_aiohttp}[sys.argv[1]]()
