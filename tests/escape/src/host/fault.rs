//! Simulates a kernel that lacks or refuses one security step: a seccomp filter on the *driver* that answers one
//! system call with an error. No hook in the product is needed, so the shipped binary itself is tested.

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
use std::io;

/// Condition on a call besides its number.
#[derive(Debug, Clone, Copy)]
pub enum When {
    /// Matches every call of the number.
    Always,
    /// The low word of this argument equals the value.
    Equals(u32, u32),
    /// The low word of this argument has one of these bits.
    Has(u32, u32),
}

/// One refused call.
#[derive(Debug, Clone, Copy)]
pub struct Refuse {
    /// Number of the call.
    pub call: i64,
    /// Condition that must hold as well.
    pub when: When,
    /// Error number that the call returns.
    pub errno: i32,
}

/// The program for a list of refusals; everything else is allowed.
pub fn program(refusals: &[Refuse]) -> Vec<sock_filter> {
    let load = |offset: u32| sock_filter { code: (BPF_LD | BPF_W | BPF_ABS) as u16, jt: 0, jf: 0, k: offset };
    let test = |kind: u32, value: u32, otherwise: u8| sock_filter {
        code: (BPF_JMP | kind | BPF_K) as u16,
        jt: 0,
        jf: otherwise,
        k: value,
    };
    let answer = |value: u32| sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k: value };
    let mut code = Vec::new();
    for refusal in refusals {
        let refuse = answer(libc::SECCOMP_RET_ERRNO | refusal.errno as u32);
        code.push(load(0));
        let argument = |index: u32| load(16 + index * 8);
        match refusal.when {
            When::Always => code.extend([test(BPF_JEQ, refusal.call as u32, 1), refuse]),
            When::Equals(index, value) => {
                code.extend([test(BPF_JEQ, refusal.call as u32, 3), argument(index), test(BPF_JEQ, value, 1), refuse]);
            }
            When::Has(index, bits) => {
                code.extend([test(BPF_JEQ, refusal.call as u32, 3), argument(index), test(BPF_JSET, bits, 1), refuse]);
            }
        }
    }
    code.push(answer(libc::SECCOMP_RET_ALLOW));
    code
}

/// Installs the program in this process; called between fork and exec, so it allocates nothing.
pub fn install(program: &mut [sock_filter]) -> io::Result<()> {
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // An ordinary user needs no_new_privs for this; root does not, and keeps the driver's situation as it is.
    if crate::sys::uid() != 0 {
        // SAFETY: prctl with plain numbers.
        if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the program outlives the call; the kernel copies it.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, 1, 0, &raw const filter) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
