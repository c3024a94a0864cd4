//! This program inside the virtual machine: first process, then the cases.

mod basics;
mod case;
mod crashes;
mod groups;
mod start;
mod world;

use crate::lines::MARK;
use case::Case;
use std::process::ExitCode;
use world::World;

pub use start::{CASES, INIT};

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
