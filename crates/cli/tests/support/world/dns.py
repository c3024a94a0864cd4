"""The name server of the world: A and AAAA of a fixed table over UDP and TCP; every other name does not exist."""

import socket
import socketserver
import struct
import sys
import threading

A, AAAA = 1, 28
ALLOWED = ["93.184.216.10", "2606:2800:220::10"]
OTHER = ["93.184.216.20", "2606:2800:220::20"]
PRIVATE = ["10.77.0.1"]
TABLE = {
    "allowed.test": ALLOWED,
    "a.allowed.test": ALLOWED,
    "other.test": OTHER,
    "private.test": PRIVATE,
    "mixed.test": ALLOWED[:1] + PRIVATE,
    "v4.test": ALLOWED[:1],
    "v6.test": ALLOWED[1:],
}


def answer(query):
    """The reply to one message."""
    number, flags = struct.unpack("!HH", query[:4])
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("ascii").lower())
        at += 1 + query[at]
    kind = struct.unpack("!H", query[at + 1 : at + 3])[0]
    addresses = TABLE.get(".".join(labels))
    records = b""
    count = 0
    for address in addresses or []:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if kind == (AAAA if family == socket.AF_INET6 else A):
            data = socket.inet_pton(family, address)
            records += struct.pack("!HHHIH", 0xC00C, kind, 1, 30, len(data)) + data
            count += 1
    # Response, authoritative, recursion as asked and available; 3 is NXDOMAIN.
    flags = 0x8480 | flags & 0x0100 | (0 if addresses else 3)
    return struct.pack("!HHHHHH", number, flags, 1, count, 0, 0) + query[12 : at + 5] + records


class Udp(socketserver.BaseRequestHandler):
    def handle(self):
        self.request[1].sendto(answer(self.request[0]), self.client_address)


class Tcp(socketserver.StreamRequestHandler):
    def handle(self):
        while len(head := self.rfile.read(2)) == 2:
            reply = answer(self.rfile.read(struct.unpack("!H", head)[0]))
            self.wfile.write(struct.pack("!H", len(reply)) + reply)


class ThreadingTcp(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


threading.Thread(target=ThreadingTcp((sys.argv[1], 53), Tcp).serve_forever, daemon=True).start()
socketserver.ThreadingUDPServer((sys.argv[1], 53), Udp).serve_forever()
