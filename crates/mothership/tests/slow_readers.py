"""Opens event streams whose kernel buffers are small, and reads nothing of them.

usage: slow_readers.py HOST PORT PATH KEY COUNT
Prints "open" once each stream has answered. On a line of standard input it reads all of them to their end, and prints for each
how it ended ("cut" or "whole") and the bytes that came.
"""
import socket
import sys

host, port, path, key, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])
request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
streams = []
for _ in range(count):
    stream = socket.socket()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    # The server sizes its own buffer by the segments of the connection.
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    stream.settimeout(30)
    stream.connect((host, port))
    stream.sendall(request)
    head = b""
    while b"\r\n\r\n" not in head:
        piece = stream.recv(1)
        if not piece:
            sys.exit(f"closed after {head!r}")
        head += piece
    if b" 200 " not in head.split(b"\r\n")[0]:
        sys.exit(f"refused: {head!r}")
    streams.append(stream)
print("open", flush=True)
sys.stdin.readline()
for stream in streams:
    size, last, ended = 0, b"", "whole"
    try:
        while piece := stream.recv(65536):
            size += len(piece)
            last = (last + piece)[-8:]
    except ConnectionResetError:
        ended = "cut"
    if not last.endswith(b"0\r\n\r\n"):
        ended = "cut"
    print(ended, size, flush=True)
