//! `nexus receipt close`: records that the user has inspected a break in the chain of receipts.

use crate::advice::receipts::now_unix_ms;
use crate::args::CloseArgs;
use crate::failure::Failure;
use crate::local::{local, nothing};
use crate::utc::utc;
use nexus_model::RunId;
use nexus_receipt::{Break, Breaks, Collected, Store};
use std::io;

/// Sentences for the answer of `verify --chain`.
pub fn describe(breaks: &Breaks) -> Vec<String> {
    let of = |one: &Break| {
        let last = one.next.saturating_sub(1);
        format!("a break: the chain of {} ends with number {last}, closed {} UTC", one.chain, utc(one.closed_unix_ms))
    };
    let mut lines: Vec<String> = breaks.all.iter().map(of).collect();
    if breaks.unreadable > 0 {
        lines.push(format!("{} lines of receipts/breaks cannot be read", breaks.unreadable));
    }
    lines
}

/// `nexus receipt close`.
pub fn close(args: &CloseArgs) -> Result<String, Failure> {
    let (store, known) = local()?;
    let found = Collected::of(&store, &known.ring()).map_err(|error| nothing(&error))?;
    let chain = args.chain;
    if found.end.is_some_and(|end| end.chain == chain) {
        let message = format!("the chain of {chain} goes on");
        return Err(Failure::refused("chain", message, "only a chain whose note was lost can be closed"));
    }
    let last = found.rings.iter().filter(|ring| ring.place.chain == chain).max_by_key(|ring| ring.place.seq);
    let Some(last) = last else {
        let message = format!("there is no valid receipt of a chain of {chain}");
        return Err(Failure::refused(
            "chain",
            message,
            "nexus receipt verify --chain names the chains that were not continued",
        ));
    };
    let (next, floor) = (last.place.seq + 1, last.place.floor);
    let broken = Break { chain, next, floor, last: last.hash, closed_unix_ms: now_unix_ms() };
    store.close(broken).map_err(|error| failed(&error))?;
    Ok(format!("the chain of {chain} is closed with number {}; verify --chain names the break\n", last.place.seq))
}

/// Removes the receipts of closed chains, where the present chain alone has as many as are to be kept. Returns the number of removed receipts.
pub fn prune(store: &Store, keep: u64) -> Result<u64, Failure> {
    let (_, known) = local()?;
    let found = Collected::of(store, &known.ring()).map_err(|error| nothing(&error))?;
    if found.end.is_none_or(|end| end.next - end.floor < keep) {
        return Ok(0);
    }
    let mut gone = 0;
    for one in found.breaks.all.iter().filter(|one| one.floor < one.next) {
        let runs: Vec<RunId> =
            found.rings.iter().filter(|ring| ring.place.chain == one.chain).map(|ring| ring.run_id).collect();
        gone += store.forget(Break { floor: one.next, ..*one }, &runs).map_err(|error| failed(&error))?;
    }
    Ok(gone)
}

fn failed(error: &io::Error) -> Failure {
    let message = format!("the chain of receipts cannot be changed: {error}");
    Failure::refused("receipts", message, "look at the state directory's disk and permissions")
}
