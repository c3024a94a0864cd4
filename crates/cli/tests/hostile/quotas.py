"""Takes all that the kernel gives of one kind, says how much that was and keeps it until a line comes."""

import ctypes
import errno
import os
import resource
import socket
import sys
import tempfile

libc = ctypes.CDLL(None, use_errno=True)
# RLIMIT_MSGQUEUE, which the module does not name.
resource_of_queues = 12


def take_inotify():
    count = 0
    while libc.inotify_init1(0) >= 0:
        count += 1
    return count, ctypes.get_errno()


def take_watches():
    """Watches in as many directories as are wanted: only whether a second limit stops them is of interest."""
    return int(open("/proc/sys/user/max_inotify_watches").read()), 0


def take_all_watches():
    """Watches the same directories with as many instances as there are."""
    base, count = tempfile.mkdtemp(), 0
    places = [os.path.join(base, str(number)).encode() for number in range(8192)]
    for place in places:
        os.mkdir(place)
    while True:
        instance = libc.inotify_init1(0)
        if instance < 0:
            return count, ctypes.get_errno()
        for place in places:
            if libc.inotify_add_watch(instance, place, 2) < 0:
                return count, ctypes.get_errno()
            count += 1


def take_queues():
    """Queues of ten messages with 8 KiB each."""
    size, count = (ctypes.c_long * 8)(0, 10, 8192), 0
    while libc.mq_open(b"/nexus-%d" % count, os.O_RDWR | os.O_CREAT, 0o600, size) >= 0:
        count += 1
    most, _ = resource.getrlimit(resource_of_queues)
    return max(most, count * 10 * 8192), ctypes.get_errno()


def take_signals():
    """A timer of POSIX holds a place in the queue of signals."""
    timer = ctypes.c_void_p()
    count = 0
    while libc.timer_create(1, None, ctypes.byref(timer)) == 0:
        count += 1
    return count, ctypes.get_errno()


def take_memory():
    page = 1 << 20
    count = 0
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    # MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED
    while libc.mmap(None, page, 3, 0x2022, -1, 0) != ctypes.c_void_p(-1).value:
        count += page
    return count, ctypes.get_errno()


def take_descriptors():
    """Sends descriptors that nobody receives."""
    held, count = [], 0
    while True:
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        held.append(pair)
        pair[0].setblocking(False)
        try:
            while True:
                socket.send_fds(pair[0], [b"x"], [0] * 250)
                count += 250
        except BlockingIOError:
            continue
        except OSError as error:
            return count, error.errno


took, why = globals()[sys.argv[1]]()
print(took, errno.errorcode.get(why, why), flush=True)
sys.stdin.readline()
