//! `nexus facility`: creates and shows facilities, and removes the files of one from a territory. Snapshots are in `snapshots`.

use crate::args::{FacilityAction, FacilityArgs};
use crate::client::access::Access;
use crate::client::call::id;
use crate::client::snapshots;
use crate::failure::{Failure, one_line};
use crate::print::{print, print_json};
use nexus_api::client::ListQuery;
use nexus_api::mothership::{CreateFacility, Facility, FacilityKind};
use nexus_facility::{Facilities, FacilityName, RepoUrl};
use std::path::Path;

/// Runs it and returns the exit code.
pub fn command(args: &FacilityArgs) -> Result<u8, Failure> {
    match &args.action {
        FacilityAction::Create { name, repo } => create(args, name.clone(), repo.clone()),
        FacilityAction::Ls => {
            let access = Access::of(&args.access)?;
            let list = access.wait(access.client.facilities(&ListQuery::default()))?;
            if args.json {
                return print_json(&list);
            }
            let text: String = list.facilities.iter().map(|one| line(one) + "\n").collect();
            print(if text.is_empty() { b"No facilities.\n" } else { text.as_bytes() })
        }
        FacilityAction::Show { id: text } => {
            let access = Access::of(&args.access)?;
            let one = access.wait(access.client.facility(id(text, "facility")?))?;
            if args.json { print_json(&one) } else { print(format!("{}\n", line(&one)).as_bytes()) }
        }
        FacilityAction::Rm { id: text, data_dir } => remove(text, data_dir),
        FacilityAction::Snapshot { name, label } => snapshots::take(name, label.as_deref(), args.json),
        FacilityAction::Snapshots { name, verify } => snapshots::list(name, *verify, args.json),
        FacilityAction::Restore { name, snapshot, no_snapshot } => {
            snapshots::restore(name, snapshot, !no_snapshot, args.json)
        }
        FacilityAction::Diff { name, from, to } => snapshots::diff(name, from, to.as_deref(), args.json),
        FacilityAction::Fork { name, new, from } => snapshots::fork(name, new, from.as_deref(), args.json),
        FacilityAction::Forget { name, snapshot } => snapshots::forget(name, snapshot, args.json),
        FacilityAction::Gc => snapshots::gc(args.json),
    }
}

fn create(args: &FacilityArgs, name: Option<String>, repo: Option<String>) -> Result<u8, Failure> {
    if let Some(url) = &repo {
        RepoUrl::parse(url).map_err(|error| {
            Failure::usage(error.code(), error.to_string(), "an address looks like https://HOST/PATH")
        })?;
    }
    let access = Access::of(&args.access)?;
    let kind = if repo.is_some() { FacilityKind::Repo } else { FacilityKind::Empty };
    let wanted = CreateFacility { kind, name, repo_url: repo, territory_id: None, retention_policy: None };
    let made = access.wait(access.client.create_facility(&wanted))?;
    if args.json { print_json(&made) } else { print(format!("{}\n", made.facility_id).as_bytes()) }
}

fn remove(text: &str, data_dir: &Path) -> Result<u8, Failure> {
    let name: FacilityName =
        text.parse().map_err(|error: nexus_facility::NameError| Failure::usage("id", error.to_string(), ""))?;
    // `nexus up` keeps its territory in a directory of this name.
    let nested = data_dir.join("territory/facilities");
    let place = if nested.is_dir() { nested } else { data_dir.join("facilities") };
    if !place.is_dir() {
        let message = format!("{} is not the data directory of a territory", data_dir.display());
        return Err(Failure::usage("data_dir", message, "Name the directory of nexus up or nexus territory join."));
    }
    let failed = |error: nexus_facility::StoreError| {
        Failure::refused(error.code(), error.to_string(), "Its files are as they were.")
    };
    Facilities::open(&place).and_then(|all| all.remove(&name)).map_err(failed)?;
    print(format!("The files of the facility {name} are removed from this territory.\n").as_bytes())
}

fn line(one: &Facility) -> String {
    let name = one.name.clone().unwrap_or_default();
    let place = one.territory_id.map(|id| format!("  on {id}")).unwrap_or_default();
    one_line(&format!("{}  {}  {name}{place}", one.facility_id, one.kind.name()))
}
