//! This program inside the virtual machine: first process, then the cases.

mod basics;
mod crashes;
mod groups;
mod start;
mod world;

use super::lines::MARK;
use std::process::ExitCode;
use world::World;

/// The word by which the kernel starts this program as the first process.
pub const INIT: &str = "vm-init";
/// The word by which that one starts it for the cases.
pub const CASES: &str = "vm-cases";

/// One case: its sentence, and the function that says why it does not hold, or what is worth a remark.
type Case = (&'static str, fn(&World) -> Result<Option<String>, String>);

fn all() -> impl Iterator<Item = &'static Case> {
    basics::CASES.iter().chain(crashes::CASES).chain(groups::CASES)
}

/// Returns the number of cases.
pub fn count() -> usize {
    all().count()
}

/// The first process: sets the machine up, starts the cases, ends the machine.
pub fn init() -> ExitCode {
    start::main()
}

/// All cases, one after the other; each is reported on a line.
pub fn cases() -> ExitCode {
    let world = match World::make() {
        Ok(world) => world,
        Err(reason) => {
            println!("{MARK} FAILED the world of the cases: {reason}");
            return ExitCode::FAILURE;
        }
    };
    for (name, case) in all() {
        match case(&world) {
            Ok(None) => println!("{MARK} ok {name}"),
            Ok(Some(remark)) => println!("{MARK} ok {name} (remark: {remark})"),
            Err(reason) => println!("{MARK} FAILED {name}: {reason}"),
        }
    }
    println!("{MARK} end");
    ExitCode::SUCCESS
}
