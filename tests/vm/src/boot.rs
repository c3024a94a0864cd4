//! Starts QEMU, shows what the machine says, and ends it when it says nothing more.

use crate::failure::Failure;
use crate::guest::INIT;
use crate::lines::Verdict;
use crate::parts::Parts;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time from the start to the last line. All cases take some 40 s on an idle machine of two processors.
const DEADLINE: Duration = Duration::from_secs(400);
const MEMORY: &str = "1024";

/// Boots the image and listens to the end.
pub fn run(parts: &Parts, initramfs: &Path) -> Result<Verdict, Failure> {
    let failed = |what: &dyn std::fmt::Display| Failure::new(format!("QEMU: {what}"), "see what it said above");
    let mut command = command(parts, initramfs);
    let mut machine = command.spawn().map_err(|error| failed(&error))?;
    let serial = machine.stdout.take().ok_or_else(|| failed(&"no serial port"))?;
    let (to, from) = channel();
    let reader = std::thread::spawn(move || {
        let mut serial = BufReader::new(serial);
        let mut line = Vec::new();
        // Not UTF-8 lines: firmware and kernel may say anything.
        while serial.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            if to.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                break;
            }
            line.clear();
        }
    });
    let deadline = Instant::now() + DEADLINE;
    let mut verdict = Verdict::default();
    let late = loop {
        match from.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                println!("{line}");
                verdict.add(&line);
            }
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    if late {
        machine.kill().map_err(|error| failed(&error))?;
    }
    let status = machine.wait().map_err(|error| failed(&error))?;
    reader.join().map_err(|_| failed(&"the reader of the serial port died"))?;
    if late {
        println!("vm: ended after {} s", DEADLINE.as_secs());
    } else if !status.success() {
        return Err(failed(&status));
    }
    Ok(verdict)
}

fn command(parts: &Parts, initramfs: &Path) -> Command {
    let mut command = Command::new(&parts.qemu);
    if let Some(libraries) = &parts.libraries {
        command.env("LD_LIBRARY_PATH", libraries);
    } else {
        command.env_remove("LD_LIBRARY_PATH");
    }
    for directory in &parts.firmware {
        command.arg("-L").arg(directory);
    }
    // q35 and not microvm: that one has no timer against which an emulated processor can be calibrated, and hangs.
    command.args(["-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", MEMORY]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"]);
    // The machine runs our own kernel and program, but what it needs of the host is nothing.
    command.args(["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"]);
    command.arg("-kernel").arg(&parts.kernel).arg("-initrd").arg(initramfs);
    command.arg("-append").arg(format!("console=ttyS0 panic=-1 quiet loglevel=3 -- {INIT}"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}
