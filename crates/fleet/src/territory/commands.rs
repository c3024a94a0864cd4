//! `nexus territory`: joins this machine, and looks at territories.

use crate::args::{TerritoryAction, TerritoryArgs};
use crate::client::access::Access;
use crate::client::call::{id, read_text};
use crate::client::login;
use crate::failure::{Failure, one_line};
use crate::print::{print, print_json};
use crate::territory::enroll;
use crate::territory::services;
use nexus_api::mothership::{CreateEnrollmentToken, Territory};
use serde_json::json;

/// Runs it and returns the exit code.
pub fn command(args: &TerritoryArgs) -> Result<u8, Failure> {
    match &args.action {
        TerritoryAction::Join { url, data_dir, name } => join(args, url, data_dir, name.clone()),
        TerritoryAction::Token { ttl } => {
            let access = Access::of(&args.access)?;
            let wanted =
                CreateEnrollmentToken { ttl_seconds: Some(ttl.div_ceil(1000)), ..CreateEnrollmentToken::default() };
            let token = access.wait(access.client.create_enrollment_token(&wanted))?;
            if args.json { print_json(&token) } else { print(format!("{}\n", token.token).as_bytes()) }
        }
        TerritoryAction::Ls => {
            let access = Access::of(&args.access)?;
            let list = access.wait(access.client.territories())?;
            if args.json {
                return print_json(&list);
            }
            let text: String = list.territories.iter().map(|one| line(one) + "\n").collect();
            print(if text.is_empty() { b"No territories.\n" } else { text.as_bytes() })
        }
        TerritoryAction::Show { id: text } => {
            let access = Access::of(&args.access)?;
            show(args, &access.wait(access.client.territory(id(text, "territory")?))?)
        }
        TerritoryAction::Drain { id: text } => {
            let access = Access::of(&args.access)?;
            show(args, &access.wait(access.client.drain(id(text, "territory")?))?)
        }
        TerritoryAction::Revoke { id: text } => {
            let access = Access::of(&args.access)?;
            show(args, &access.wait(access.client.revoke(id(text, "territory")?))?)
        }
    }
}

fn join(args: &TerritoryArgs, url: &str, data_dir: &std::path::Path, name: Option<String>) -> Result<u8, Failure> {
    let token = login::read_secret("the enrolment token")?;
    let ca = args.access.ca.as_deref().map(|file| read_text(file, "ca")).transpose()?;
    let territory = services::territory(data_dir)?;
    if let Some(identity) = territory.identity().map_err(|error| services::of_territory(&error))? {
        let message = format!("{} is the territory {} already", data_dir.display(), identity.territory_id);
        return Err(Failure::refused("identity", message, "Name another data directory."));
    }
    let runtime = services::runtime()?;
    let name = name.or_else(|| Some(rustix::system::uname().nodename().to_string_lossy().into_owned()));
    let identity =
        enroll::enroll(&territory, url, ca.as_deref(), args.access.plain.rule(), &token, name, runtime.handle())?;
    if args.json {
        return print_json(&json!({ "territory_id": identity.territory_id, "api_url": identity.server }));
    }
    let text = format!(
        "This machine is the territory {} now. nexus daemon run --data-dir {} takes work.\n",
        identity.territory_id,
        data_dir.display()
    );
    print(text.as_bytes())
}

fn show(args: &TerritoryArgs, one: &Territory) -> Result<u8, Failure> {
    if args.json {
        return print_json(one);
    }
    print(format!("{}\n", line(one)).as_bytes())
}

fn line(one: &Territory) -> String {
    let status = serde_json::to_value(one.status).ok().and_then(|word| Some(word.as_str()?.to_owned()));
    let name = one.name.clone().unwrap_or_default();
    let most = one.capacity.max_concurrent.map(|most| format!(" of {most}")).unwrap_or_default();
    one_line(&format!("{}  {}  {name}  {}{most} directives", one.territory_id, status.unwrap_or_default(), one.load))
}
