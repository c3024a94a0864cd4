//! `nexus receipt keys` and `nexus receipt prune`.

use crate::advice::receipts::{self as advice, now_unix_ms};
use crate::args::{KeysAction, KeysArgs, PruneArgs};
use crate::failure::Failure;
use crate::utc::utc;
use nexus_receipt::{KeyDirectory, KeyError, Keyring, Link, Store};

/// `nexus receipt keys`.
pub fn keys(args: &KeysArgs) -> Result<String, Failure> {
    let places = crate::host::ready_state_dir()?;
    let directory = KeyDirectory::open(&places.state).map_err(|error| advice::key(&error))?;
    let answer = match &args.action {
        KeysAction::List => list(&directory),
        KeysAction::Rotate => rotate(&directory),
        KeysAction::Export { all, links } => export(&directory, *all, *links),
    };
    answer.map_err(|error| advice::key(&error))
}

fn list(keys: &KeyDirectory) -> Result<String, KeyError> {
    let known = keys.known()?;
    let links = keys.links()?;
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

fn rotate(keys: &KeyDirectory) -> Result<String, KeyError> {
    let (old, new) = keys.rotate(now_unix_ms())?;
    Ok(format!("{} is retired, {} signs from now on\n", old.id(), new.id()))
}

fn export(keys: &KeyDirectory, all: bool, links: bool) -> Result<String, KeyError> {
    if links {
        let links = keys.links()?;
        return Ok(links.iter().map(|(_, link)| String::from_utf8_lossy(link).into_owned()).collect());
    }
    // Who exports a key before the first run wants the one that it will use.
    keys.current()?;
    let known = keys.known()?;
    let wanted = known.all.iter().filter(|key| all || known.current.as_ref() == Some(key));
    let texts: Vec<String> =
        wanted.map(|key| format!("# nexus receipts, key {}\n{}", key.id(), key.to_pem())).collect();
    Ok(texts.concat())
}

/// `nexus receipt prune`.
pub fn prune(args: &PruneArgs) -> Result<String, Failure> {
    let places = crate::host::ready_state_dir()?;
    let store = Store::open(&places.state).map_err(|error| advice::directory(&error))?;
    let gone = store.prune(args.keep).map_err(|error| {
        let message = format!("the receipts cannot be pruned: {error}");
        Failure::refused("receipts", message, "look at the state directory's disk and permissions")
    })?;
    let gone = gone + crate::breaks::prune(&store, args.keep)?;
    Ok(format!("removed {gone} receipts\n"))
}
