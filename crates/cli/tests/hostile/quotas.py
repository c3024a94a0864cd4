"""Takes all that the kernel gives of one kind, says how much that was and keeps it until a line comes."""

import ctypes
import errno
import fcntl
import os
import resource
import select
import socket
import sys
import tempfile

libc = ctypes.CDLL(None, use_errno=True)
# RLIMIT_MSGQUEUE, which the module does not name.


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
    return count, ctypes.get_errno()


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


def take_pipes():
    """Makes 900 pipes as large as the kernel allows, fills them and counts those of 1 MiB."""
    held, large = [], 0
    for _ in range(900):
        pipe = os.pipe()
        held.append(pipe)
        try:
            fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, 1 << 20)
        except PermissionError:
            pass
        os.set_blocking(pipe[1], False)
        try:
            while os.write(pipe[1], b"x" * 65536):
                pass
        except BlockingIOError:
            pass
        large += fcntl.fcntl(pipe[1], fcntl.F_GETPIPE_SZ) == 1 << 20
    globals()["pipes"] = held
    return large, 0


def take_epoll():
    """Watches one file with as many instances of epoll as there are descriptors: each counts for the user."""
    (reader, _), count = os.pipe(), 0
    globals()["watched"] = reader
    held = globals()["instances"] = []
    try:
        others = [os.dup(reader) for _ in range(200)]
        held.append(others)
        while True:
            instance = select.epoll()
            held.append(instance)
            for other in others:
                instance.register(other)
                count += 1
    except OSError as error:
        return count, error.errno


def register_format():
    """Mounts binfmt_misc in a user namespace of its own, and registers a format there."""
    steps = [
        lambda: libc.unshare(0x10000000 | 0x00020000),
        lambda: libc.mount(b"none", tempfile.mkdtemp().encode(), b"binfmt_misc", 0, None),
        lambda: os.open("/proc/sys/fs/binfmt_misc/register", os.O_WRONLY),
    ]
    errors = []
    for step in steps:
        try:
            errors.append(0 if step() >= 0 else ctypes.get_errno())
        except OSError as error:
            errors.append(error.errno)
    return sum(error == 0 for error in errors), errors[1]


def take_descriptors():
    """Sends descriptors that nobody receives, as many as the hard limit allows."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = 0
    # They are under way as long as both ends are open.
    held = globals()["sockets"] = []
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
