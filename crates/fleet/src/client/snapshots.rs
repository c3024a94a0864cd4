//! `nexus facility snapshot|snapshots|restore|diff|fork|forget|gc`, on the facilities of this machine.

use crate::client::local::{Local, name_of, of_states};
use crate::client::progress::Progress;
use crate::failure::{Failure, one_line};
use crate::print::{print, print_json};
use nexus_caller::utc::utc;
use nexus_facility::snapshots::record::Named;
use nexus_facility::snapshots::{InUse, Restored};
use nexus_facility::{Facility, Snapshots};
use nexus_model::ByteText;
use serde_json::json;

type Answer = Result<u8, Failure>;

/// Returns about the number of entries of a facility: that of its last snapshot.
fn expected(states: &Snapshots<'_>, facility: &Facility) -> Option<u64> {
    let all = states.history(facility).ok()?.all().ok()?.0;
    all.last().map(|one| one.record.entries)
}

fn as_json(one: &Named) -> Result<serde_json::Value, Failure> {
    serde_json::to_value(one).map_err(|error| Failure::refused("internal", error.to_string(), ""))
}

/// Keeps the present state.
pub fn take(name: &str, label: Option<&str>, json: bool) -> Answer {
    let local = Local::open()?;
    let held = local.hold(name)?;
    let states = local.snapshots();
    let mut progress = Progress::new("Keeping", expected(&states, &held.facility));
    let taken = states.take(&held.facility, label, &mut |entries, bytes| progress.tell(entries, bytes));
    drop(progress);
    let taken = taken.map_err(|error| of_states(&error))?;
    tell_left_out(&taken.snapshot);
    if json {
        let mut answer = as_json(&taken.snapshot)?;
        answer["read"] = taken.read.into();
        answer["new_bytes"] = taken.new_bytes.into();
        return print_json(&answer);
    }
    print(format!("{}\n", line(&taken.snapshot)).as_bytes())
}

/// Says once what a snapshot does not have.
fn tell_left_out(one: &Named) {
    let count = one.record.left_out_count;
    if let Some(first) = one.record.left_out.first() {
        let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        let path = first.path.as_path().display();
        crate::notices::tell(&format!("Not in the snapshot: {path}{more} ({}).", first.why));
    }
}

fn line(one: &Named) -> String {
    let Named { record, .. } = one;
    let label = record.label.as_deref().map(|label| format!("  {label}")).unwrap_or_default();
    let (time, entries) = (utc(record.created_ms), record.entries);
    one_line(&format!("{}  {}  {time}  {entries} entries, {} bytes{label}", record.number, one.short(), record.bytes))
}

/// Lists the snapshots.
pub fn list(name: &str, verifies: bool, json: bool) -> Answer {
    let local = Local::open()?;
    let facility = local.get(name)?;
    let states = local.snapshots();
    let (all, damaged) =
        states.history(&facility).and_then(|history| history.all()).map_err(|error| of_states(&error))?;
    let mut faults: Vec<String> = damaged.iter().map(ToString::to_string).collect();
    if verifies {
        let mut progress = Progress::new("Reading", None);
        let mut objects = 0;
        for one in &all {
            match states.verify(&facility, &one.id) {
                Ok(count) => objects += count,
                Err(error) => faults.push(format!("snapshot {} ({}): {error}", one.record.number, one.short())),
            }
            progress.tell(objects, 0);
        }
    }
    if json {
        let snapshots = all.iter().map(as_json).collect::<Result<Vec<_>, _>>()?;
        print_json(&json!({ "snapshots": snapshots, "damaged": faults }))?;
    } else {
        let text: String = all.iter().map(|one| line(one) + "\n").collect();
        print(if text.is_empty() && faults.is_empty() { b"No snapshots.\n" } else { text.as_bytes() })?;
    }
    match faults.first() {
        None => Ok(0),
        Some(first) => {
            for fault in &faults {
                crate::notices::tell(&one_line(fault));
            }
            Err(Failure::refused(
                "snapshot_damaged",
                format!("{} of the snapshots of the facility {name} cannot be used: {first}", faults.len()),
                "The others are whole.",
            ))
        }
    }
}

/// Brings a facility back to a snapshot.
pub fn restore(name: &str, which: &str, keeps_present: bool, json: bool) -> Answer {
    let local = Local::open()?;
    let held = local.hold(name)?;
    local.refuse_waiting_changes(&held.facility)?;
    let states = local.snapshots();
    let mut progress = Progress::new("Restoring", None);
    let done =
        states.restore(&held.facility, which, keeps_present, &mut |entries, bytes| progress.tell(entries, bytes));
    drop(progress);
    let Restored { to: restored, before, meanwhile, in_use } = done.map_err(|error| of_states(&error))?;
    if json {
        let before = before.as_ref().map(|taken| as_json(&taken.snapshot)).transpose()?;
        let meanwhile = meanwhile.as_ref().map(as_json).transpose()?;
        return print_json(&json!({
            "restored": as_json(&restored)?,
            "before": before,
            "meanwhile": meanwhile,
            "in_use": in_use_json(&in_use),
        }));
    }
    tell_in_use(&in_use);
    if let Some(meanwhile) = meanwhile {
        let number = meanwhile.record.number;
        crate::notices::tell(&format!(
            "Another process changed the facility while it was restored. What it wrote is snapshot {number}."
        ));
    }
    let kept = before.map_or_else(String::new, |taken| {
        tell_left_out(&taken.snapshot);
        format!(" Its state of before is snapshot {}.", taken.snapshot.record.number)
    });
    print(format!("The facility {name} is as it was at snapshot {}.{kept}\n", restored.record.number).as_bytes())
}

fn in_use_json(all: &[InUse]) -> Vec<serde_json::Value> {
    all.iter().map(|one| json!({ "tree": one.tree, "file": one.file })).collect()
}

/// Names each replaced tree that is kept for a process that still writes to it.
fn tell_in_use(all: &[InUse]) {
    for one in all {
        crate::notices::tell(&one_line(&format!(
            "A process has {} of the replaced state open for writing. That state stays at {} until the next restore or nexus facility gc \
             after the process closed the file; what it wrote is then a snapshot.",
            one.file.as_path().display(),
            one.tree.display()
        )));
    }
}

/// Lists the paths that differ.
pub fn diff(name: &str, from: &str, to: Option<&str>, json: bool) -> Answer {
    use nexus_facility::snapshots::ChangeKind;
    let local = Local::open()?;
    let states = local.snapshots();
    let difference = if to.is_some() {
        states.difference(&local.get(name)?, from, to, &mut |_, _| {})
    } else {
        let held = local.hold(name)?;
        let mut progress = Progress::new("Comparing", expected(&states, &held.facility));
        states.difference(&held.facility, from, None, &mut |entries, bytes| progress.tell(entries, bytes))
    };
    let difference = difference.map_err(|error| of_states(&error))?;
    let word = |kind| match kind {
        ChangeKind::Added => "added",
        ChangeKind::Modified => "modified",
        ChangeKind::Deleted => "deleted",
        ChangeKind::Type => "type",
        ChangeKind::Attributes => "attributes",
    };
    if json {
        let rows: Vec<_> = difference
            .changes
            .iter()
            .map(|one| {
                json!({
                    "path": ByteText(one.path.clone()),
                    "kind": word(one.kind),
                    "is_directory": one.is_directory,
                    "old_size": one.old_size,
                    "new_size": one.new_size,
                })
            })
            .collect();
        let to = difference.to.map(|to| to.id);
        return print_json(&json!({ "from": difference.from.id, "to": to, "changes": rows }));
    }
    if difference.changes.is_empty() {
        return print(b"No differences.\n");
    }
    let rows = difference.changes.iter().map(|one| {
        let path = String::from_utf8_lossy(&one.path);
        let path = if one.path.is_empty() { ".".into() } else { path };
        let end = if one.is_directory { "/" } else { "" };
        one_line(&format!("{:<10}  {path}{end}", word(one.kind))) + "\n"
    });
    print(rows.collect::<String>().as_bytes())
}

/// Makes a new facility with the state of another one.
pub fn fork(name: &str, new: &str, from: Option<&str>, json: bool) -> Answer {
    let new = name_of(new)?;
    let local = Local::open()?;
    let states = local.snapshots();
    let mut progress = Progress::new("Forking", None);
    let mut tell = |entries, bytes| progress.tell(entries, bytes);
    let done = if from.is_some() {
        states.fork(&local.get(name)?, &new, from, &mut tell)
    } else {
        let held = local.hold(name)?;
        states.fork(&held.facility, &new, None, &mut tell)
    };
    drop(progress);
    let (forked, snapshot) = done.map_err(|error| of_states(&error))?;
    if json {
        return print_json(&json!({ "facility": forked.name, "from": as_json(&snapshot)? }));
    }
    let number = snapshot.record.number;
    print(format!("The facility {new} begins with snapshot {number} of {name}.\n").as_bytes())
}

/// Forgets a snapshot.
pub fn forget(name: &str, which: &str, json: bool) -> Answer {
    let local = Local::open()?;
    let held = local.hold(name)?;
    let forgotten = local.snapshots().forget(&held.facility, which).map_err(|error| of_states(&error))?;
    if json {
        return print_json(&as_json(&forgotten)?);
    }
    print(format!("Snapshot {} of the facility {name} is forgotten.\n", forgotten.record.number).as_bytes())
}

/// Removes what no snapshot needs.
pub fn gc(json: bool) -> Answer {
    let local = Local::open()?;
    let mut progress = Progress::new("Cleaning", None);
    let cleaned = local.snapshots().clean(&mut |packs, _| progress.tell(packs, 0));
    drop(progress);
    let cleaned = cleaned.map_err(|error| of_states(&error))?;
    let swept = cleaned.swept;
    if json {
        return print_json(&json!({
            "snapshots": cleaned.snapshots,
            "objects_removed": swept.objects,
            "objects_kept": swept.kept,
            "bytes_before": swept.bytes_before,
            "bytes_after": swept.bytes_after,
            "in_use": in_use_json(&cleaned.in_use),
        }));
    }
    tell_in_use(&cleaned.in_use);
    let freed = swept.bytes_before.saturating_sub(swept.bytes_after);
    print(
        format!(
            "{} snapshots need {} objects; {} others are removed, {freed} bytes are free.\n",
            cleaned.snapshots, swept.kept, swept.objects
        )
        .as_bytes(),
    )
}
