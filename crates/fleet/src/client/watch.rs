//! `nexus directive ls --watch`: lists directives, and prints each line again when it has changed.
//!
//! ```text
//!  an event stream for each open directive ─┐
//!  a second without an event ───────────────┴─▶ the list ─▶ lines that differ from what was printed
//! ```

use crate::client::access::Access;
use crate::client::call::failure;
use crate::client::display;
use crate::failure::Failure;
use crate::failures;
use crate::terminal::out;
use nexus_api::client::{ClientError, ListQuery, MothershipClient};
use nexus_api::mothership::{Directive, EventId};
use nexus_model::ids::{DirectiveId, FacilityId};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Directives that are watched, the latest ones.
const SHOWN: u32 = 50;
/// Event streams that are open at one time. The list is read each second all the same.
const MAX_STREAMS: usize = 32;
/// Time without an event after which the list is read.
const READ_EVERY: Duration = Duration::from_secs(1);
/// Shortest time between two lists, however many events come.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(100);
/// Failed reads in a row after which the watch ends.
const MAX_FAILURES: u32 = 30;

/// Prints the list and its changes until the process is ended or its output is closed.
pub fn watch(access: &Access, facility: Option<FacilityId>, as_json: bool) -> Result<u8, Failure> {
    access.drive(async {
        let (wake, mut woken) = mpsc::channel(1);
        let mut streams =
            Streams { client: access.client.clone(), wake, followed: BTreeSet::new(), tasks: JoinSet::new() };
        let (mut shown, mut failures) = (BTreeMap::new(), 0);
        loop {
            let page = ListQuery { cursor: None, limit: Some(SHOWN) };
            match access.client.directives(facility, &page).await {
                Ok(list) => {
                    failures = 0;
                    streams.follow(&list.directives);
                    if !print_changes(&list.directives, &mut shown, as_json)? {
                        return Ok(0);
                    }
                }
                Err(error) if is_final(&error) || failures + 1 >= MAX_FAILURES => return Err(failure(&error)),
                Err(_) => failures += 1,
            }
            tokio::time::sleep(MIN_READ_INTERVAL).await;
            // Without an event the list is read all the same: a new directive has no stream yet.
            drop(tokio::time::timeout(READ_EVERY, woken.recv()).await);
        }
    })
}

/// Returns whether a later call would be refused, too.
fn is_final(error: &ClientError) -> bool {
    matches!(error, ClientError::Stranger { .. }) || error.status().is_some_and(|status| status < 500 && status != 429)
}

/// Prints the lines that differ from what was printed, the oldest first. Returns whether the output is still open.
fn print_changes(
    list: &[Directive],
    shown: &mut BTreeMap<DirectiveId, String>,
    as_json: bool,
) -> Result<bool, Failure> {
    for one in list.iter().rev() {
        let line = if as_json { serde_json::to_string(one).unwrap_or_default() } else { display::directive(one) };
        if shown.get(&one.directive_id) == Some(&line) {
            continue;
        }
        let mut stdout = out::stdout();
        match stdout.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(false),
            Err(error) => return Err(failures::not_written("the list", &error)),
        }
        shown.insert(one.directive_id, line);
    }
    shown.retain(|id, _| list.iter().any(|one| one.directive_id == *id));
    Ok(true)
}

/// Event streams of the directives that are open.
struct Streams {
    client: MothershipClient,
    wake: mpsc::Sender<()>,
    followed: BTreeSet<DirectiveId>,
    tasks: JoinSet<DirectiveId>,
}

impl Streams {
    /// Opens streams for directives that are open and have none.
    fn follow(&mut self, list: &[Directive]) {
        while let Some(ended) = self.tasks.try_join_next() {
            if let Ok(id) = ended {
                self.followed.remove(&id);
            }
        }
        for one in list.iter().filter(|one| !one.state.is_terminal()) {
            if self.followed.len() < MAX_STREAMS && self.followed.insert(one.directive_id) {
                self.tasks.spawn(wake_on_events(self.client.clone(), one.directive_id, self.wake.clone()));
            }
        }
    }
}

/// Wakes the list at each event of a directive, and returns when its stream has ended. A stream that broke goes on after the last
/// event that came.
async fn wake_on_events(client: MothershipClient, id: DirectiveId, wake: mpsc::Sender<()>) -> DirectiveId {
    let mut last: Option<EventId> = None;
    loop {
        let Ok(mut stream) = client.events(id, last).await else { break };
        loop {
            match stream.next().await {
                Ok(Some(event)) => {
                    last = event.id.and_then(|id| id.parse().ok()).or(last);
                    // A wake that is there already is enough.
                    wake.try_send(()).ok();
                }
                // The directive is over, or the server stops; the list shows which.
                Ok(None) => return id,
                Err(_) => break,
            }
        }
        tokio::time::sleep(READ_EVERY).await;
    }
    tokio::time::sleep(READ_EVERY).await;
    id
}
