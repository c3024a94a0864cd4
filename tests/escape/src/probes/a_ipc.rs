//! A12, A13, A16: sockets and System V objects of the host.

use crate::answer::Answer;
use crate::context::Context;
use crate::sys::{self, address, ask};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// Connects to an abstract socket of the host (containerd-shim CVE-2020-15257).
pub fn abstract_connect(context: &Context) -> Answer {
    match SocketAddr::from_abstract_name(&context.abstract_socket) {
        Ok(name) => Answer::from_io(UnixStream::connect_addr(&name)),
        Err(error) => Answer::from_error(&error),
    }
}

/// Reports whether `/proc/net/unix` lists the abstract socket.
pub fn abstract_listed(context: &Context) -> Answer {
    match std::fs::read_to_string("/proc/net/unix") {
        Ok(list) => Answer::choose(list.contains(&context.abstract_socket), "listed", "absent"),
        Err(error) => Answer::from_error(&error),
    }
}

/// Twin: an abstract socket of its own.
pub fn abstract_own(context: &Context) -> Answer {
    let connect = || {
        let name = SocketAddr::from_abstract_name(format!("{}-own", context.token))?;
        let _listener = UnixListener::bind_addr(&name)?;
        UnixStream::connect_addr(&name)
    };
    Answer::from_io(connect())
}

/// Connects to a path socket of the host.
pub fn path_connect(context: &Context, place: &str) -> Answer {
    match context.sockets.get(place) {
        Some(path) => Answer::from_io(UnixStream::connect(path)),
        None => Answer::of("host-unknown"),
    }
}

/// Twin: a path socket of its own.
pub fn path_own(context: &Context) -> Answer {
    let path = format!("/tmp/{}-own.sock", context.token);
    let connect = || {
        let _listener = UnixListener::bind(&path)?;
        UnixStream::connect(&path)
    };
    let answer = Answer::from_io(connect());
    sys::either_way(std::fs::remove_file(&path));
    answer
}

/// Reports whether a variable of the caller came in.
pub fn variable(name: &str) -> Answer {
    Answer::choose(std::env::var_os(name).is_some(), "set", "unset")
}

/// The shared memory of the host, by key.
pub fn shm_by_key(context: &Context) -> Answer {
    ask(libc::SYS_shmget, &[context.ipc_key as usize, 0, 0])
}

/// The shared memory of the host, by id, as an attacker would guess it. Id 0 is left to the host's objects, so a
/// fresh namespace answers EINVAL.
pub fn shm_by_id(context: &Context) -> Answer {
    ask(libc::SYS_shmat, &[context.shm_id as usize, 0, libc::SHM_RDONLY as usize])
}

/// The message queue of the host.
pub fn msg_by_key(context: &Context) -> Answer {
    ask(libc::SYS_msgget, &[context.ipc_key as usize, 0])
}

/// The semaphores of the host.
pub fn sem_by_key(context: &Context) -> Answer {
    ask(libc::SYS_semget, &[context.ipc_key as usize, 0, 0])
}

/// The POSIX message queue of the host.
pub fn mqueue(context: &Context) -> Answer {
    let name = sys::c_path(context.mqueue.trim_start_matches('/'));
    ask(libc::SYS_mq_open, &[address(name.as_bytes_with_nul()), libc::O_RDONLY as usize, 0, 0])
}

/// Twin: shared memory of its own.
pub fn shm_own(_: &Context) -> Answer {
    match sys::call(libc::SYS_shmget, &[libc::IPC_PRIVATE as usize, 4096, 0o600]) {
        Ok(id) => ask(libc::SYS_shmctl, &[id as usize, libc::IPC_RMID as usize, 0]),
        Err(number) => Answer::of(crate::answer::errno_name(number)),
    }
}
