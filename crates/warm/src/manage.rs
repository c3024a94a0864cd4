//! Shows and ends the launchers of this user.

use super::args::WarmArgs;
use crate::failure::Failure;
use crate::host;
use crate::launcher::directory;
use crate::print::{print, print_json};
use nexus_driver_namespace::warm::{Found, Greeting, Likeness, Place, PlaceError, inspect_all};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Time for launchers that were asked to end.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// Ends all launchers of this user. Runs that live go on.
pub fn stop(args: &WarmArgs) -> Result<u8, Failure> {
    let Some(place) = Place::open(&directory(&host::state_dir()?)).map_err(|error| unusable(&error))? else {
        return stopped(args, 0);
    };
    let mut waiting = Vec::new();
    for found in all(&place)? {
        if let Some((connection, _)) = found.door {
            connection.end().map_err(|error| {
                let message = format!("the launcher (process {}) cannot be ended: {error}", connection.pid());
                Failure::refused("warm", message, format!("kill {} ends it", connection.pid()))
            })?;
            waiting.push(found.name);
        }
    }
    let count = waiting.len();
    let until = Instant::now() + GONE_WITHIN;
    loop {
        let left = place.names().map_err(|error| unusable(&error))?;
        waiting.retain(|name| left.contains(name));
        if waiting.is_empty() {
            return stopped(args, count);
        }
        if Instant::now() >= until {
            let message = format!("{} of {count} launchers do not end", waiting.len());
            return Err(Failure::refused(
                "warm",
                message,
                "A stopped process ends after kill -CONT; nexus warm --status names it",
            ));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn stopped(args: &WarmArgs, count: usize) -> Result<u8, Failure> {
    if args.json {
        return print_json(&json!({ "schema": "nexus.warm/1", "stopped": count }));
    }
    let text = match count {
        0 => "No launcher was up.\n".to_owned(),
        1 => "The launcher has ended.\n".to_owned(),
        count => format!("{count} launchers have ended.\n"),
    };
    print(text.as_bytes())
}

/// Shows the launchers of this user.
pub fn status(args: &WarmArgs) -> Result<u8, Failure> {
    let place = Place::open(&directory(&host::state_dir()?)).map_err(|error| unusable(&error))?;
    let found = place.as_ref().map_or_else(|| Ok(Vec::new()), all)?;
    // A socket of a process that was killed; the next launcher of that name takes its place.
    let up: Vec<Value> = found.iter().filter_map(described).collect();
    if args.json {
        return print_json(&json!({ "schema": "nexus.warm/1", "launchers": up }));
    }
    if up.is_empty() {
        return print(b"No launcher is up. nexus warm starts one.\n");
    }
    let lines: Vec<String> = found.iter().filter_map(line).collect();
    print(format!("{}\n", lines.join("\n")).as_bytes())
}

fn described(found: &Found) -> Option<Value> {
    let (connection, greeting) = found.door.as_ref()?;
    let (state, more) = match greeting {
        Ok(Greeting::Ready { started, idle_s }) => ("ready", json!({ "started": started, "ends_in_s": idle_s })),
        Ok(Greeting::Unlike { what, started }) => ("unlike", json!({ "started": started, "differs": what })),
        Err(_) => ("silent", json!({})),
    };
    let mut all = json!({ "name": found.name, "pid": connection.pid(), "state": state });
    if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
        all.extend(more);
    }
    Some(all)
}

fn line(found: &Found) -> Option<String> {
    let (connection, greeting) = found.door.as_ref()?;
    let pid = connection.pid();
    Some(match greeting {
        Ok(Greeting::Ready { started, idle_s }) => {
            format!("Process {pid} serves this shell: {started} sandboxes started, ends in {idle_s} s.")
        }
        Ok(Greeting::Unlike { what, started }) => {
            format!(
                "Process {pid} serves others: it and this shell differ in {} ({started} sandboxes started).",
                what.join(", ")
            )
        }
        Err(_) => format!("Process {pid} does not answer this shell: it is of another version, or stopped."),
    })
}

fn all(place: &Place) -> Result<Vec<Found>, Failure> {
    let own = Likeness::own().map_err(|error| {
        Failure::refused("warm", format!("/proc/self cannot be read: {error}"), "nexus doctor shows what works here")
    })?;
    inspect_all(place, &own).map_err(|error| unusable(&error))
}

fn unusable(error: &PlaceError) -> Failure {
    Failure::refused("warm", error.to_string(), "chmod 700 the directory, or set NEXUS_STATE_DIR to another one.")
}
