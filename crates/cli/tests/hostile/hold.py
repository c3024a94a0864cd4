"""Programs that try to hold up the end of their run. Each says `up` and goes on until it is killed."""

import ctypes
import fcntl
import os
import random
import signal
import socket
import sys
import termios
import threading
import time

FOREVER = 3600


def ignore_all():
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass


def up():
    os.write(1, b"up\n")


def waiting(fd):
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4), sys.byteorder)


def steal(out, tell):
    """Takes back what poll(2) of the reader has just announced, so that the reader's read waits."""
    up()
    # The reader is to see this line: what is stolen comes after it.
    while waiting(1):
        time.sleep(0.001)
    try:
        taken = os.open(f"/proc/self/fd/{out}", os.O_RDONLY | os.O_NONBLOCK)
    except PermissionError:
        time.sleep(FOREVER)
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        os.write(out, b"x")
        for _ in range(random.randrange(400)):
            pass
        try:
            os.read(taken, 1)
        except BlockingIOError:
            continue
        time.sleep(0.0003)
        os.write(tell, b"e")
        for _ in range(20):
            time.sleep(0.0005)
            if not waiting(tell):
                break
        else:
            break
    time.sleep(FOREVER)


def stdin_is_filled():
    """Fills the pipe of its own standard input, so that the writer finds no room after all."""
    up()
    try:
        to = os.open("/proc/self/fd/0", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        time.sleep(FOREVER)
    while True:
        try:
            os.write(to, b"x" * 65536)
        except BlockingIOError:
            pass
        os.read(0, 4096)


def terminal_flaps():
    """Closes its terminal and opens it again, and changes what a write and a read of the other end do."""
    up()
    name = os.ttyname(1)
    os.closerange(0, 3)
    while True:
        fd = os.open(name, os.O_RDWR | os.O_NOCTTY)
        termios.tcflow(fd, random.choice([termios.TCOOFF, termios.TCOON, termios.TCIOFF, termios.TCION]))
        try:
            os.write(fd, b"x" * 10)
        except OSError:
            pass
        os.close(fd)


def terminal_stops():
    up()
    termios.tcflow(1, termios.TCOOFF)
    time.sleep(FOREVER)


def server():
    """Takes connections, reads nothing, and writes without an end."""
    listener = socket.create_server(("127.0.0.1", 7000), backlog=200)
    up()
    held = []

    def pour(connection):
        try:
            while True:
                connection.send(b"y" * 65536)
        except OSError:
            time.sleep(FOREVER)

    while True:
        connection, _ = listener.accept()
        held.append(connection)
        threading.Thread(target=pour, args=(connection,), daemon=True).start()


def storm():
    """Stops every process inside but itself: those of further commands before they have executed, too."""
    up()
    while True:
        try:
            os.kill(-1, signal.SIGSTOP)
        except OSError:
            pass


def stopped():
    up()
    os.kill(os.getpid(), signal.SIGSTOP)


def stopped_children():
    for _ in range(20):
        if os.fork() == 0:
            os.setsid()
            os.kill(os.getpid(), signal.SIGSTOP)
    up()
    time.sleep(FOREVER)


def flood():
    up()
    while True:
        os.write(1, b"o" * 65536)
        os.write(2, b"e" * 65536)


def traced():
    """Waits in a vfork for a child that waits."""
    up()
    libc = ctypes.CDLL(None)
    if libc.vfork() == 0:
        libc.pause()
    time.sleep(FOREVER)


def crashes():
    """Crashes without an end, with much in memory."""
    for _ in range(4):
        if os.fork() == 0:
            while True:
                if os.fork() == 0:
                    held = bytearray(b"x") * (20 << 20)
                    os.abort()
                os.wait()
    up()
    time.sleep(FOREVER)


def egress():
    """Leaves connections half open on every way to the network, reads no download and asks for names without an end."""
    held = []

    def connect(port, sent):
        connection = socket.socket()
        held.append(connection)
        connection.settimeout(1)
        try:
            connection.connect(("127.0.0.1", port))
            connection.send(sent)
        except OSError:
            pass

    up()
    for _ in range(50):
        connect(3128, b"CONNECT allowed.invalid:443 HTT")
        connect(3128, b"\x05")
        connect(53, b"\xff\xff\x00")
        connect(int(sys.argv[2]), b"GET /endless HTTP/1.1\r\n\r\n")
    questions = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    number = 0
    while True:
        number += 1
        name = b"n%d" % number
        question = number.to_bytes(4, "big")[2:] + b"\1\0\0\1\0\0\0\0\0\0" + bytes([len(name)]) + name
        try:
            questions.sendto(question + b"\6denied\7invalid\0\0\1\0\1", ("127.0.0.1", 53))
        except OSError:
            pass


def take_memory(most):
    held = []
    for _ in range(most >> 20):
        held.append(bytearray(b"x") * (1 << 20))
    time.sleep(FOREVER)


def take_disk(most):
    with open("taken", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, most)
        time.sleep(FOREVER)


def take():
    """Takes more of something than the run may have, beside the way that the run is held up."""
    time.sleep(0.2)
    {"memory": take_memory, "disk": take_disk}[sys.argv[3]](int(sys.argv[4]))


WAYS = {
    "deaf": lambda: (up(), time.sleep(FOREVER)),
    "stdout": lambda: steal(1, 2),
    "stderr": lambda: steal(2, 1),
    "stdin": stdin_is_filled,
    "terminal-flaps": terminal_flaps,
    "terminal-stops": terminal_stops,
    "server": server,
    "storm": storm,
    "stopped": stopped,
    "stopped-children": stopped_children,
    "flood": flood,
    "vfork": traced,
    "crashes": crashes,
    "egress": egress,
}

ignore_all()
if len(sys.argv) > 3:
    if sys.argv[1] == "storm":
        # It stops every other process.
        threading.Thread(target=take, daemon=True).start()
    elif os.fork() == 0:
        take()
WAYS[sys.argv[1]]()
