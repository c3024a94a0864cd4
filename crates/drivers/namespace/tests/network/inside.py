"""Runs inside a sandbox with an egress; every line that starts with FAILED is one."""
import errno
import os
import socket
import struct
import sys
import threading

failed = 0


def check(name, seen, expected):
    global failed
    if seen != expected:
        failed += 1
        print(f"FAILED {name}: {seen!r}, not {expected!r}", flush=True)


def error_of(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    return "ok"


def said(host, port):
    with socket.create_connection((host, port), timeout=20) as connection:
        text = b""
        while piece := connection.recv(100):
            text += piece
    return text.decode()


def own_server(family, address):
    server = socket.socket(family)
    server.bind((address, 0))
    server.listen()
    threading.Thread(target=lambda: server.accept()[0].sendall(b"own"), daemon=True).start()
    return server.getsockname()[1]


def datagram(family, to):
    with socket.socket(family, socket.SOCK_DGRAM) as udp:
        udp.connect(to)
        udp.send(b"?")
        udp.settimeout(20)
        udp.recv(100)


ipv6 = os.path.exists("/proc/net/if_inet6")
check("public", said("93.184.216.34", 22), "93.184.216.34:22")
check("private", said("10.1.2.3", 6379), "10.1.2.3:6379")
check("metadata", said("169.254.169.254", 80), "169.254.169.254:80")
if ipv6:
    check("public IPv6", said("2606:4700::1111", 443), "[2606:4700::1111]:443")
check("own server", said("127.0.0.1", own_server(socket.AF_INET, "127.0.0.1")), "own")
if ipv6:
    check("own IPv6 server", said("::1", own_server(socket.AF_INET6, "::1")), "own")
check("datagram", error_of(lambda: datagram(socket.AF_INET, ("8.8.8.8", 53))), "ECONNREFUSED")
check("QUIC", error_of(lambda: datagram(socket.AF_INET, ("93.184.216.34", 443))), "ECONNREFUSED")
if ipv6:
    check("IPv6 datagram", error_of(lambda: datagram(socket.AF_INET6, ("2606:4700::1111", 443))), "ECONNREFUSED")
check("raw", error_of(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)), "EPERM")
check("ping", error_of(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)), "EPERM")
check("packet", error_of(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)), "EAFNOSUPPORT")
check("devices", sorted(name for _, name in socket.if_nameindex()), ["lo"])


def change_routes():
    """RTM_DELROUTE of the local default route."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        message = struct.pack("=IHHIIBBBBBBBBI", 28, 25, 5, 1, 0, socket.AF_INET, 0, 0, 0, 255, 4, 254, 2, 0)
        netlink.send(message)
        answer = netlink.recv(100)
        code = -struct.unpack("=i", answer[16:20])[0]
        if code:
            raise OSError(code, "")


check("routes", error_of(change_routes), "EPERM")
check("rules", error_of(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)) in ("EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT"), True)


def bind(port):
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("127.0.0.1", port))
        server.listen()


check("take a listener's place", error_of(lambda: bind(15001)), "EADDRINUSE")

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
    udp.settimeout(20)
    udp.sendto(b"name?", ("127.0.0.1", 53))
    check("dns", udp.recv(100), b"name?")
check("dns over TCP", said("127.0.0.1", 53), "dns")
check("http proxy", said("127.0.0.1", 3128), "http")
with socket.create_connection(("127.0.0.1", 1080), timeout=20) as socks:
    check("socks proxy", socks.recv(100), b"all closed")
    check("after the end", error_of(lambda: said("93.184.216.34", 22)), "ECONNREFUSED")
    check("proxy after the end", error_of(lambda: said("127.0.0.1", 3128)), "ECONNREFUSED")
    if ipv6:
        check("IPv6 after the end", error_of(lambda: said("2606:4700::1111", 443)), "ECONNREFUSED")
sys.exit(failed)
