//! `nexus receipt keys` and `nexus receipt prune`.

use super::issue::{self, now_unix_ms};
use super::keys::{KeyError, KeyFolder};
use super::store::Store;
use super::utc::utc;
use crate::args::{KeysAction, KeysArgs, PruneArgs};
use crate::failure::Failure;
use crate::places::Places;
use nexus_policy::receipt::{Keyring, Link};

/// `nexus receipt keys`.
pub fn keys(args: &KeysArgs) -> Result<String, Failure> {
    let places = Places::find()?.ensure()?;
    let folder = KeyFolder::open(&places.state).map_err(|error| issue::key(&error))?;
    let answer = match &args.action {
        KeysAction::List => list(&folder),
        KeysAction::Rotate => rotate(&folder),
        KeysAction::Export { all, links } => export(&folder, *all, *links),
    };
    answer.map_err(|error| issue::key(&error))
}

fn list(folder: &KeyFolder) -> Result<String, KeyError> {
    let known = folder.known()?;
    let links = folder.links()?;
    let ring = known.ring();
    let mut lines = Vec::new();
    for key in &known.all {
        let id = key.id();
        let next = links.iter().find(|(old, _)| old == id.as_str());
        let state = match next.map(|(_, link)| Link::open(link, &Keyring::new(vec![key.clone()]))) {
            _ if known.current.as_ref() == Some(key) => "signs".to_owned(),
            Some(Ok((new, link))) if ring.get(&new.id()).is_some() => {
                format!("retired {} UTC, followed by {}", utc(link.rotated_unix_ms), new.id())
            }
            Some(Ok(_) | Err(_)) => "retired, and the statement about its successor is not valid".to_owned(),
            None => "retired, and says nothing of a successor".to_owned(),
        };
        lines.push(format!("{id}  {state}\n"));
    }
    if lines.is_empty() {
        return Ok("There is no key yet; the first run makes one.\n".to_owned());
    }
    Ok(lines.concat())
}

fn rotate(folder: &KeyFolder) -> Result<String, KeyError> {
    let (old, new) = folder.rotate(now_unix_ms())?;
    Ok(format!("{} is retired, {} signs from now on\n", old.id(), new.id()))
}

fn export(folder: &KeyFolder, all: bool, links: bool) -> Result<String, KeyError> {
    if links {
        let links = folder.links()?;
        return Ok(links.iter().map(|(_, link)| String::from_utf8_lossy(link).into_owned()).collect());
    }
    // Who exports a key before the first run wants the one that it will use.
    folder.current()?;
    let known = folder.known()?;
    let keys = known.all.iter().filter(|key| all || known.current.as_ref() == Some(key));
    let texts: Vec<String> = keys.map(|key| format!("# nexus receipts, key {}\n{}", key.id(), key.to_pem())).collect();
    Ok(texts.concat())
}

/// `nexus receipt prune`.
pub fn prune(args: &PruneArgs) -> Result<String, Failure> {
    let places = Places::find()?.ensure()?;
    let store = Store::open(&places.state).map_err(|error| issue::folder(&error))?;
    let gone = store.prune(args.keep).map_err(|error| {
        let message = format!("the receipts cannot be pruned: {error}");
        Failure::refused("receipts", message, "look at the state directory's disk and permissions")
    })?;
    let gone = gone + super::breaks::prune(&store, args.keep)?;
    Ok(format!("removed {gone} receipts\n"))
}
