#!/usr/bin/env python3
"""Shows a directory at another place through a real FUSE file system, without extended attributes.

passthrough.py BACKING PLACE handles|none: mounts, with file handles or without, prints "ready", and serves until the place is unmounted.
"""
import ctypes
import errno
import os
import stat
import struct
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
BACKING, PLACE = sys.argv[1].encode(), sys.argv[2].encode()
AT_FDCWD = -100
MAX_WRITE = 131072
# Flags of the first answer. The last one says that there are no file handles, as on 9p.
BIG_WRITES, INIT_EXT, NO_EXPORT = 1 << 5, 1 << 30, 1 << 38
EXPORT = 0 if sys.argv[3] == "handles" else NO_EXPORT


def call(result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions".encode()
call(libc.mount(b"passthrough", PLACE, b"fuse", 0, options))

# Node number -> (number of the directory, name). The number is the inode of the backing entry, but 1 for the top.
nodes = {}
# Node number -> how many entries with it are gone. Without it, the kernel takes a new directory that got the number of a
# removed one for the removed one while it still knows that, and makes nothing in it (ENOENT).
generations = {}
TOP = os.lstat(BACKING).st_ino


def path(node, name=None):
    parts = [] if name is None else [name]
    while node != 1:
        node, own = nodes[node]
        parts.append(own)
    return b"/".join([BACKING] + parts[::-1])


def number(found):
    return 1 if found.st_ino == TOP else found.st_ino


def attributes(found):
    times = (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)
    return struct.pack(
        "=6Q3I7I", found.st_ino, found.st_size, found.st_blocks, *(time // 10**9 for time in times),
        *(time % 10**9 for time in times), found.st_mode, found.st_nlink, found.st_uid, found.st_gid,
        found.st_rdev, 4096, 0)


def entry(node, name):
    found = os.lstat(path(node, name))
    nodes[number(found)] = (node, name)
    return struct.pack("=4Q2I", number(found), generations.get(number(found), 0), 0, 0, 0, 0) + attributes(found)


def gone(found):
    if stat.S_ISDIR(found.st_mode) or found.st_nlink == 1:
        generations[number(found)] = generations.get(number(found), 0) + 1


def attr_out(node):
    return struct.pack("=Q2I", 0, 0, 0) + attributes(os.lstat(path(node)))


def names(body, offset=0):
    return body[offset:].split(b"\0")


def set_attributes(node, body):
    valid, _, _, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid, _ = struct.unpack(
        "=2I6Q3I5I", body[:88])
    at = path(node)
    if valid & 1:
        os.chmod(at, stat.S_IMODE(mode))
    if valid & 6:
        os.lchown(at, uid if valid & 2 else -1, gid if valid & 4 else -1)
    if valid & 8:
        os.truncate(at, size)
    if valid & 0x1B0:
        now, found = time.time_ns(), os.lstat(at)
        new_atime = now if valid & 0x80 else atime * 10**9 + atime_ns if valid & 0x10 else found.st_atime_ns
        new_mtime = now if valid & 0x100 else mtime * 10**9 + mtime_ns if valid & 0x20 else found.st_mtime_ns
        os.utime(at, ns=(new_atime, new_mtime), follow_symlinks=False)
    return attr_out(node)


def made(node, name, uid, gid):
    os.lchown(path(node, name), uid, gid)
    return entry(node, name)


def rename(node, to_dir, flags, body):
    old, new = names(body)[:2]
    try:
        replaced = os.lstat(path(to_dir, new))
    except FileNotFoundError:
        replaced = None
    call(libc.renameat2(AT_FDCWD, path(node, old), AT_FDCWD, path(to_dir, new), flags))
    if replaced and not flags & 2:
        gone(replaced)
    for directory, name in [(to_dir, new)] + ([(node, old)] if flags & 2 else []):
        nodes[number(os.lstat(path(directory, name)))] = (directory, name)
    return b""


def list_directory(node, offset):
    out = b""
    for at, name in enumerate(sorted(os.listdir(path(node)))):
        if at < offset:
            continue
        try:
            found = os.lstat(path(node, name))
        except FileNotFoundError:
            continue
        one = struct.pack("=2Q2I", number(found), at + 1, len(name), stat.S_IFMT(found.st_mode) >> 12) + name
        one += b"\0" * (-len(one) % 8)
        if len(out) + len(one) > 4096:
            break
        out += one
    return out


def answer(opcode, node, uid, gid, body):
    if opcode == 26:
        return struct.pack("=4I2H2I2H8I", 7, 38, 65536, BIG_WRITES | INIT_EXT, 12, 9, MAX_WRITE, 1, 32, 0, EXPORT >> 32, *[0] * 7)
    if opcode == 1:
        return entry(node, names(body)[0])
    if opcode == 3:
        return attr_out(node)
    if opcode == 4:
        return set_attributes(node, body)
    if opcode == 5:
        return os.readlink(path(node))
    if opcode == 6:
        name, target = names(body)[:2]
        os.symlink(target, path(node, name))
        return made(node, name, uid, gid)
    if opcode == 8:
        mode, device_number = struct.unpack("=2I", body[:8])
        name = names(body, 16)[0]
        os.mknod(path(node, name), mode, device_number)
        return made(node, name, uid, gid)
    if opcode == 9:
        name = names(body, 8)[0]
        os.mkdir(path(node, name), struct.unpack("=I", body[:4])[0])
        return made(node, name, uid, gid)
    if opcode == 10:
        found = os.lstat(path(node, names(body)[0]))
        os.unlink(path(node, names(body)[0]))
        gone(found)
        return b""
    if opcode == 11:
        found = os.lstat(path(node, names(body)[0]))
        os.rmdir(path(node, names(body)[0]))
        gone(found)
        return b""
    if opcode == 12:
        return rename(node, struct.unpack("=Q", body[:8])[0], 0, body[8:])
    if opcode == 45:
        to_dir, flags = struct.unpack("=QI", body[:12])
        return rename(node, to_dir, flags, body[16:])
    if opcode == 13:
        old, name = struct.unpack("=Q", body[:8])[0], names(body, 8)[0]
        os.link(path(old), path(node, name), follow_symlinks=False)
        return entry(node, name)
    if opcode == 14:
        flags = struct.unpack("=I", body[:4])[0] & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND)
        return struct.pack("=Q2I", os.open(path(node), flags), 0, 0)
    if opcode == 35:
        flags, mode = struct.unpack("=2I", body[:8])
        name = names(body, 16)[0]
        handle = os.open(path(node, name), (flags | os.O_CREAT) & ~os.O_APPEND, mode)
        return made(node, name, uid, gid) + struct.pack("=Q2I", handle, 0, 0)
    if opcode == 15:
        handle, offset, size = struct.unpack("=2QI", body[:20])
        return os.pread(handle, size, offset)
    if opcode == 16:
        handle, offset, size = struct.unpack("=2QI", body[:20])
        return struct.pack("=2I", os.pwrite(handle, body[40:40 + size], offset), 0)
    if opcode == 17:
        found = os.statvfs(path(node))
        return struct.pack(
            "=5Q4I6I", found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree, 4096, 255, 4096,
            0, *[0] * 6)
    if opcode == 18:
        os.close(struct.unpack("=Q", body[:8])[0])
        return b""
    if opcode == 20:
        os.fsync(struct.unpack("=Q", body[:8])[0])
        return b""
    if opcode == 27:
        return struct.pack("=Q2I", 0, 0, 0)
    if opcode == 28:
        return list_directory(node, struct.unpack("=2Q", body[:16])[1])
    if opcode in (25, 29, 30, 50):
        return b""
    raise OSError(errno.ENOSYS, "")


os.umask(0)
print("ready", flush=True)
while True:
    try:
        request = os.read(device, MAX_WRITE + 4096)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
            continue
        break
    _, opcode, unique, node, uid, gid, _, _ = struct.unpack("=2I2Q4I", request[:40])
    if opcode in (2, 36, 42):
        continue
    try:
        reply, error = answer(opcode, node, uid, gid, request[40:]), 0
    except OSError as failure:
        reply, error = b"", -(failure.errno or errno.EIO)
    except KeyError:
        reply, error = b"", -errno.ESTALE
    try:
        os.write(device, struct.pack("=IiQ", 16 + len(reply), error, unique) + reply)
    except OSError:
        continue
