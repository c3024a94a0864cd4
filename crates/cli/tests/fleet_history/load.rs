//! The load on a fleet: directives of several kinds, a reader of all of them, and subscribers of some.

use super::record::{Record, Seen};
use super::{FACILITIES, LEASE, witness};
use nexus_api::client::{ClientConfig, ClientError, EventStream, Http, ListQuery, MothershipClient};
use nexus_api::mothership::{CancelRequest, CreateDirective, Directive, DirectiveEvent};
use nexus_model::ids::{DirectiveId, FacilityId};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Number of the directive that outlives the lease of the stopped daemon unless the launcher kills it.
pub const OUTLIVES: usize = 0;
/// Number of the directive that may run again after that daemon was stopped.
pub const REPEATS: usize = 1;

/// The kind of a directive, by its number.
pub fn kind(number: usize) -> usize {
    match number {
        OUTLIVES => 8,
        REPEATS => 7,
        _ => number % 8,
    }
}

/// The command of a directive, by its number.
pub fn script(test: u32, number: usize) -> String {
    let lines = |count: usize, pause: &str| {
        format!("i=0; while [ $i -lt {count} ]; do echo \"line $i of {number}\"; i=$((i+1)); sleep {pause}; done")
    };
    let body = match kind(number) {
        2 => format!("{}; exit {}", lines(5, "0.05"), number % 100 + 1),
        3 | 4 | 8 => format!("{}; sleep 600", lines(3, "0.05")),
        5 => lines(6, "0.3"),
        6 => lines(15, "0.1"),
        7 => lines(8, "0.5"),
        _ => lines(10, "0.02"),
    };
    format!(": {}; echo {number} >> marks; {body}", witness::word(test, number))
}

/// Returns the whole output of a directive whose command ends on its own.
pub fn expected(number: usize) -> Option<String> {
    let count = match kind(number) {
        2 => 5,
        3 | 4 | 8 => return None,
        5 => 6,
        6 => 15,
        7 => 8,
        _ => 10,
    };
    Some((0..count).map(|line| format!("line {line} of {number}\n")).collect::<Vec<_>>().concat())
}

pub fn requeues(number: usize) -> bool {
    matches!(kind(number), 5 | 7)
}

pub fn request(test: u32, number: usize) -> CreateDirective {
    let mut request = json!({ "command": script(test, number) });
    if kind(number) == 4 {
        request["timeout_seconds"] = json!(1);
    }
    if number == OUTLIVES || number == REPEATS {
        request["requirements"] = json!({ "labels": { "stopped": "yes" } });
        // It ends also where no lease is lost.
        request["timeout_seconds"] = json!(LEASE.as_secs() + 4);
    }
    if requeues(number) {
        request["on_lease_loss"] = json!("requeue");
    }
    serde_json::from_value(request).unwrap()
}

/// State that the threads of a test share.
pub struct Shared {
    /// Address and key of the control plane.
    pub access: (String, String),
    pub test: u32,
    pub record: Arc<Record>,
    pub client: MothershipClient,
    pub facilities: Vec<FacilityId>,
    /// Directives that were created, by number.
    pub created: Mutex<Vec<DirectiveId>>,
    /// No more directives are created.
    pub enough: AtomicBool,
    pub over: AtomicUsize,
    /// The test is over.
    pub stop: Arc<AtomicBool>,
}

impl Shared {
    /// A client for one runtime: connections belong to the runtime that made them.
    pub fn reader(&self) -> MothershipClient {
        MothershipClient::new(&Http::new(ClientConfig::new(&self.access.0)).unwrap(), &self.access.1).unwrap()
    }
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Directives that are not over, at most: what waits at the end of the faults has to end soon after it.
const MAX_OPEN: usize = 50;

/// Creates directives one after the other. A call without an answer is repeated by its name until it has one.
pub async fn create(shared: &Shared) {
    let mut number = 0_usize;
    while !shared.enough.load(Ordering::SeqCst) {
        let open = number.saturating_sub(shared.over.load(Ordering::SeqCst));
        if open >= MAX_OPEN {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        }
        let (request, name) = (request(shared.test, number), format!("directive {number}"));
        let facility = number % FACILITIES;
        match shared.client.create_directive(shared.facilities[facility], &request, Some(&name)).await {
            Ok(made) => {
                let id = made.directive_id.to_string();
                shared.record.add(Seen::Created { id, number, facility, requeues: requeues(number) });
                shared.created.lock().unwrap().push(made.directive_id);
                number += 1;
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
            Err(error) => {
                assert!(error.status().is_none_or(|status| status >= 500 || status == 429), "{error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Reads all directives again and again, and cancels those that are to be canceled once they run.
pub async fn read(shared: &Shared) {
    let mut canceled = BTreeSet::new();
    while !shared.stop.load(Ordering::SeqCst) {
        let Ok(all) = list(&shared.client).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        for one in &all {
            shared.record.add(seen(one));
            let number = shared.created.lock().unwrap().iter().position(|id| *id == one.directive_id);
            let is_due = one.state.name() == "running" && number.is_some_and(|number| kind(number) == 3);
            if is_due
                && canceled.insert(one.directive_id)
                && shared.client.cancel(one.directive_id, &CancelRequest::default()).await.is_err()
            {
                // It may have arrived; a second one changes nothing.
                canceled.remove(&one.directive_id);
            }
        }
        shared.over.store(all.iter().filter(|one| one.state.is_terminal()).count(), Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

pub fn seen(one: &Directive) -> Seen {
    Seen::Read {
        id: one.directive_id.to_string(),
        state: one.state.to_string(),
        reason: one.reason.clone(),
        exit: one.exit_code,
        attempt: u64::from(one.attempt),
    }
}

pub async fn list(client: &MothershipClient) -> Result<Vec<Directive>, ClientError> {
    let (mut all, mut query) = (Vec::new(), ListQuery { cursor: None, limit: Some(200) });
    loop {
        let page = client.directives(None, &query).await?;
        all.extend(page.directives);
        match page.next_cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return Ok(all),
        }
    }
}

/// Follows every fourth directive to its end, over as many connections as it takes.
pub async fn subscribe(shared: Arc<Shared>, subscriber: usize) {
    let mut next = subscriber;
    while !shared.stop.load(Ordering::SeqCst) {
        let id = shared.created.lock().unwrap().get(next).copied();
        match id {
            Some(id) => {
                tokio::spawn(follow(Arc::clone(&shared), subscriber, id));
                next += 4;
            }
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

pub async fn follow(shared: Arc<Shared>, subscriber: usize, id: DirectiveId) {
    let (mut last, mut is_over) = (None, false);
    while !shared.stop.load(Ordering::SeqCst) {
        let Ok(mut stream) = shared.client.events(id, last).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        loop {
            let event = EventStream::next(&mut stream).await;
            let Ok(Some(event)) = event else {
                if matches!(event, Ok(None)) && is_over {
                    return shared.record.add(Seen::StreamEnded { id: id.to_string(), subscriber });
                }
                break;
            };
            last = event.id.as_deref().and_then(|id| id.parse().ok());
            let data: DirectiveEvent = serde_json::from_str(&event.data).unwrap();
            is_over |= data.state.is_terminal();
            let event = event.id.unwrap_or_default();
            shared.record.add(Seen::Event { id: id.to_string(), subscriber, event, state: data.state.to_string() });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
