//! Requirements that every driver must meet. The suite is a function, not a test: each driver's tests call it with what
//! that driver needs, and it returns every violation instead of stopping at the first.

use crate::{CommandEvent, Driver, Event, Found, Handle, MoreCommand, REQUIRED, Sandbox, Session, Stdio};
use nexus_model::{ExitStatus, Guarantee, Plan};
use rustix::fd::AsFd;
use std::collections::BTreeSet;
use std::fs::File;

/// Parts that a driver's tests give to the suite.
pub struct Fixture<'a> {
    /// A plan for a command that ends with this code; without a network, and with nothing writable but the workspace.
    pub exit: &'a dyn Fn(u8) -> Plan,
    /// A plan for a command that stays until it is killed.
    pub stay: &'a dyn Fn() -> Plan,
    /// A plan that requires this guarantee.
    pub requiring: &'a dyn Fn(Guarantee) -> Plan,
}

/// Everything that the driver does wrong; empty for a sound one.
pub fn violations(driver: &dyn Driver, fixture: &Fixture<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |name: &str, result: Result<(), String>| {
        if let Err(what) = result {
            found.push(format!("{name}: {what}"));
        }
    };
    check("prepare changes nothing", prepare_changes_nothing(driver, fixture));
    for code in [0, 1, 42, 255] {
        check("an exit code is reported exactly", exit_code(driver, fixture, code));
    }
    check("a signal is reported", killed(driver, fixture));
    check("an exec ends alone", further_command(driver, fixture));
    check("destroy from every state", destroy_everywhere(driver, fixture));
    check("the inventory names a sandbox", inventory_names(driver, fixture));
    check("a sandbox has no guarantee that the probe denies", stated_guarantees(driver, fixture));
    check("a sandbox has what every driver gives", required_guarantees(driver, fixture));
    check("a missing guarantee is refused", missing_guarantee(driver, fixture));
    check("a foreign handle is refused", foreign_handle(driver, fixture));
    found
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn inventory(driver: &dyn Driver) -> Result<Vec<Found>, String> {
    driver.inventory().map_err(text)
}

fn nothing_left(driver: &dyn Driver, handle: &Handle) -> Result<(), String> {
    match inventory(driver)?.into_iter().find(|found| found.is_of(handle.run_id)) {
        Some(found) => Err(format!("{} is still in the inventory", found.what)),
        None => Ok(()),
    }
}

fn prepare_changes_nothing(driver: &dyn Driver, fixture: &Fixture<'_>) -> Result<(), String> {
    let before = inventory(driver)?;
    let plan = (fixture.exit)(0);
    let first = driver.prepare(&plan).map_err(text)?;
    let second = driver.prepare(&plan).map_err(text)?;
    if first != second {
        return Err("two handles of one plan differ".to_owned());
    }
    let json = serde_json::to_string(&first).map_err(text)?;
    if serde_json::from_str::<Handle>(&json).map_err(text)? != first {
        return Err("a saved handle reads back differently".to_owned());
    }
    if inventory(driver)? == before { Ok(()) } else { Err("something was made".to_owned()) }
}

fn run(driver: &dyn Driver, plan: &Plan, kill: bool) -> Result<ExitStatus, String> {
    let handle = driver.prepare(plan).map_err(text)?;
    let outcome = run_with(driver, plan, &handle, kill);
    driver.destroy(&handle).map_err(text)?;
    nothing_left(driver, &handle)?;
    outcome
}

fn run_with(driver: &dyn Driver, plan: &Plan, handle: &Handle, kill: bool) -> Result<ExitStatus, String> {
    let sandbox = driver.start(plan, handle).map_err(text)?;
    let null = File::options().read(true).write(true).open("/dev/null").map_err(text)?;
    let mut session = Session::start(&sandbox, plan, Stdio::Pipes([null.as_fd(); 3])).map_err(text)?;
    loop {
        match session.recv().map_err(text)? {
            Event::Started(_) if kill => session.signal_all(9).map_err(text)?,
            Event::Up | Event::Layer(_) | Event::Names(_) | Event::Started(_) | Event::OutOfTime => {}
            other @ (Event::Listeners(_)
            | Event::Terminal { .. }
            | Event::Command { .. }
            | Event::Forwarded { .. }
            | Event::ForwardFailed { .. }) => return Err(format!("the host did not ask for {other:?}")),
            Event::NotStarted(reason) => return Err(text(reason)),
            Event::Ended(ended) => {
                sandbox.process.wait().map_err(text)?;
                return Ok(ended.status);
            }
        }
    }
}

fn exit_code(driver: &dyn Driver, fixture: &Fixture<'_>, code: u8) -> Result<(), String> {
    match run(driver, &(fixture.exit)(code), false)? {
        ExitStatus::Code(seen) if seen == code => Ok(()),
        other => Err(format!("{code} came out as {other:?}")),
    }
}

fn killed(driver: &dyn Driver, fixture: &Fixture<'_>) -> Result<(), String> {
    match run(driver, &(fixture.stay)(), true)? {
        ExitStatus::Signal(9) => Ok(()),
        other => Err(format!("SIGKILL came out as {other:?}")),
    }
}

/// The main command stays while another command comes and goes, with an exact code each time.
fn further_command(driver: &dyn Driver, fixture: &Fixture<'_>) -> Result<(), String> {
    let plan = (fixture.stay)();
    let handle = driver.prepare(&plan).map_err(text)?;
    let sandbox = driver.start(&plan, &handle).map_err(text)?;
    let outcome = two_further(&sandbox, &plan, fixture);
    sandbox.process.kill().map_err(text)?;
    sandbox.process.wait().map_err(text)?;
    driver.destroy(&handle).map_err(text)?;
    outcome
}

fn two_further(sandbox: &Sandbox, plan: &Plan, fixture: &Fixture<'_>) -> Result<(), String> {
    let null = File::options().read(true).write(true).open("/dev/null").map_err(text)?;
    let stdio = Stdio::Pipes([null.as_fd(); 3]);
    let mut session = Session::start(sandbox, plan, stdio).map_err(text)?;
    for (exec, code) in [(2, 0), (3, 42)] {
        let other = (fixture.exit)(code);
        let command = MoreCommand { argv: other.argv.clone(), env: other.env.clone(), cwd: plan.cwd.clone() };
        session.exec(exec, &command, stdio).map_err(text)?;
        let mut started = false;
        loop {
            match session.recv().map_err(text)? {
                Event::Up | Event::Layer(_) | Event::Names(_) | Event::Started(_) | Event::OutOfTime => {}
                Event::Command { exec: seen, event: CommandEvent::Started(_) } if seen == exec => started = true,
                Event::Command { exec: seen, event: CommandEvent::Ended(ended) } if seen == exec && started => {
                    if ended.status == ExitStatus::Code(code) {
                        break;
                    }
                    return Err(format!("{code} came out as {:?}", ended.status));
                }
                other => return Err(format!("unexpected: {other:?}")),
            }
        }
    }
    Ok(())
}

fn destroy_everywhere(driver: &dyn Driver, fixture: &Fixture<'_>) -> Result<(), String> {
    let plan = (fixture.stay)();
    let handle = driver.prepare(&plan).map_err(text)?;
    driver.destroy(&handle).map_err(|error| format!("before the start: {error}"))?;
    let sandbox = driver.start(&plan, &handle).map_err(text)?;
    driver.destroy(&handle).map_err(|error| format!("while running: {error}"))?;
    sandbox.process.kill().map_err(text)?;
    sandbox.process.wait().map_err(text)?;
    driver.destroy(&handle).map_err(|error| format!("again: {error}"))?;
    nothing_left(driver, &handle)
}

fn inventory_names(driver: &dyn Driver, fixture: &Fixture<'_>) -> Result<(), String> {
    let plan = (fixture.stay)();
    let handle = driver.prepare(&plan).map_err(text)?;
    let sandbox = driver.start(&plan, &handle).map_err(text)?;
    let null = File::options().read(true).write(true).open("/dev/null").map_err(text)?;
    let mut session = Session::start(&sandbox, &plan, Stdio::Pipes([null.as_fd(); 3])).map_err(text)?;
    while !matches!(session.recv().map_err(text)?, Event::Started(_)) {}
    let found = inventory(driver)?.iter().any(|found| found.is_of(plan.run_id));
    driver.destroy(&handle).map_err(text)?;
    sandbox.process.kill().map_err(text)?;
    sandbox.process.wait().map_err(text)?;
    if found { Ok(()) } else { Err("it runs and is not named".to_owned()) }
}

/// The guarantees that a sandbox without a network and without writable binds states.
fn stated(driver: &dyn Driver, fixture: &Fixture<'_>) -> Result<BTreeSet<Guarantee>, String> {
    let plan = (fixture.exit)(0);
    let handle = driver.prepare(&plan).map_err(text)?;
    let sandbox = driver.start(&plan, &handle).map_err(text)?;
    let stated = sandbox.guarantees.clone();
    sandbox.process.kill().map_err(text)?;
    sandbox.process.wait().map_err(text)?;
    driver.destroy(&handle).map_err(text)?;
    Ok(stated)
}

/// Looks for the guarantees of [`REQUIRED`], in the probe and in a sandbox.
fn required_guarantees(driver: &dyn Driver, fixture: &Fixture<'_>) -> Result<(), String> {
    let report = driver.probe();
    let stated = stated(driver, fixture)?;
    for guarantee in REQUIRED {
        report.gives(*guarantee).map_err(|reason| format!("the probe denies {guarantee}: {reason}"))?;
        if !stated.contains(guarantee) {
            return Err(format!("a sandbox is without {guarantee}"));
        }
    }
    Ok(())
}

/// Compares the guarantees of a sandbox, which the receipt signs, with those that the probe gives.
fn stated_guarantees(driver: &dyn Driver, fixture: &Fixture<'_>) -> Result<(), String> {
    let stated = stated(driver, fixture)?;
    let report = driver.probe();
    match stated.iter().find(|guarantee| report.gives(**guarantee).is_err()) {
        Some(guarantee) => Err(format!("{guarantee} is stated")),
        None if stated.is_empty() => Err("none is stated".to_owned()),
        None => Ok(()),
    }
}

fn missing_guarantee(driver: &dyn Driver, fixture: &Fixture<'_>) -> Result<(), String> {
    let report = driver.probe();
    for guarantee in Guarantee::ALL {
        let accepted = driver.prepare(&(fixture.requiring)(*guarantee)).is_ok();
        if accepted != report.gives(*guarantee).is_ok() {
            return Err(format!("{guarantee}: probe and prepare do not agree"));
        }
    }
    Ok(())
}

fn foreign_handle(driver: &dyn Driver, fixture: &Fixture<'_>) -> Result<(), String> {
    let plan = (fixture.exit)(0);
    let mut handle = driver.prepare(&plan).map_err(text)?;
    "another".clone_into(&mut handle.driver);
    match driver.start(&plan, &handle) {
        Err(crate::StartError::WrongDriver { .. }) => Ok(()),
        Err(other) => Err(format!("refused for another reason: {other}")),
        Ok(_) => Err("started".to_owned()),
    }
}
