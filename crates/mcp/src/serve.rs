//! Talks to the client: reads its messages, answers them, and gives each call of a tool a thread.

use crate::call::{Call, Outcome};
use crate::era::{self, Era};
use crate::lines::{Line, Lines, MAX_LINE};
use crate::rpc::{self, Incoming, RpcError};
use crate::schemas;
use crate::tools::Tools;
use crate::wire::{Wire, lock};
use nexus_caller::failure::Failure;
use nexus_caller::notices;
use nexus_caller::signals::Signals;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Calls at a time.
const MAX_CALLS: usize = 64;

/// The state of one connection.
struct Server {
    tools: Tools,
    wire: Wire,
    /// The calls that go on, by the id of their request, as JSON; each with whether it was cancelled.
    calls: Mutex<HashMap<String, Arc<AtomicBool>>>,
    is_initialized: AtomicBool,
}

/// Serves the client on standard input and output until it leaves or a signal ends this process, and ends what was started.
pub fn serve(tools: Tools) -> Result<(), Failure> {
    let broken =
        |what: &str, error: std::io::Error| Failure::refused("mcp", format!("{what}: {error}"), "Start it again.");
    let signals = Signals::catch_all().map_err(|error| broken("Signals cannot be caught", error))?;
    let server = Arc::new(Server {
        tools,
        wire: Wire::new(Box::new(std::io::stdout())),
        calls: Mutex::default(),
        is_initialized: AtomicBool::new(false),
    });
    let read = server.read_all(&signals);
    for cancelled in lock(&server.calls).values() {
        cancelled.store(true, Ordering::SeqCst);
    }
    server.tools.commands.close();
    read.map_err(|error| broken("Standard input cannot be read", error))
}

impl Server {
    fn read_all(self: &Arc<Self>, signals: &Signals) -> std::io::Result<()> {
        let (stdin, mut lines, mut buffer) = (rustix::stdio::stdin(), Lines::default(), vec![0; 64 * 1024]);
        loop {
            let mut list = [
                PollFd::from_borrowed_fd(stdin, PollFlags::IN),
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            ];
            match poll(&mut list, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if !list[1].revents().is_empty() && signals.ending()? {
                return Ok(());
            }
            if list[0].revents().is_empty() {
                continue;
            }
            match rustix::io::read(stdin, buffer.as_mut_slice()) {
                Ok(0) => return Ok(()),
                Ok(count) => lines.push(&buffer[..count]).into_iter().for_each(|line| self.take(line)),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take(self: &Arc<Self>, line: Line) {
        let incoming = match line {
            Line::Whole(line) => rpc::read(&line),
            Line::TooLong => {
                let error = RpcError::new(rpc::PARSE_ERROR, format!("a message has at most {MAX_LINE} bytes"));
                Some(Incoming::Bad { id: Value::Null, error })
            }
        };
        match incoming {
            Some(Incoming::Request { id, method, params }) => self.request(&id, &method, params),
            Some(Incoming::Notification { method, params }) if method == "notifications/cancelled" => {
                if let Some(cancelled) =
                    params.get("requestId").and_then(|id| lock(&self.calls).get(&id.to_string()).cloned())
                {
                    cancelled.store(true, Ordering::SeqCst);
                }
            }
            Some(Incoming::Bad { id, error }) => self.wire.send(&rpc::answer(&id, Err(error))),
            // This server asks nothing, and nothing else that a client tells concerns it.
            Some(Incoming::Notification { .. } | Incoming::Response) | None => {}
        }
    }

    fn request(self: &Arc<Self>, id: &Value, method: &str, params: Value) {
        let era = match era::of(method, &params, self.is_initialized.load(Ordering::SeqCst)) {
            Ok(era) => era,
            Err(error) => return self.wire.send(&rpc::answer(id, Err(error))),
        };
        let done = match (method, era) {
            (era::INITIALIZE, Era::Legacy) => {
                self.is_initialized.store(true, Ordering::SeqCst);
                Ok(json!({
                    "protocolVersion": era::negotiated(&params),
                    "capabilities": { "tools": { "listChanged": false } },
                    "serverInfo": era::server(),
                    "instructions": schemas::INSTRUCTIONS,
                }))
            }
            (era::DISCOVER, Era::Modern) => {
                let found = json!({
                    "supportedVersions": [era::MODERN],
                    "capabilities": { "tools": {} },
                    "instructions": schemas::INSTRUCTIONS,
                });
                Ok(era::dress(era, found, true))
            }
            ("ping", Era::Legacy) => Ok(json!({})),
            ("tools/list", _) => Ok(era::dress(era, json!({ "tools": schemas::list() }), true)),
            ("tools/call", _) => match self.call(id, era, params) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            _ => Err(RpcError::new(
                rpc::METHOD_NOT_FOUND,
                format!("there is no method {method:?} in this generation of the protocol"),
            )),
        };
        self.wire.send(&rpc::answer(id, done));
    }

    /// Begins a call; its thread answers it.
    fn call(self: &Arc<Self>, id: &Value, era: Era, mut params: Value) -> Result<(), RpcError> {
        let invalid = |message: &str| RpcError::new(rpc::INVALID_PARAMS, message);
        let name =
            params.get("name").and_then(Value::as_str).ok_or_else(|| invalid("name must be a string"))?.to_owned();
        if !schemas::has(&name) {
            return Err(invalid(&format!("there is no tool {name:?}")));
        }
        let arguments = params.get_mut("arguments").map(Value::take).unwrap_or_default();
        let token = params.get("_meta").and_then(|meta| meta.get("progressToken")).cloned();
        let token = token.filter(|token| token.is_string() || token.is_i64() || token.is_u64());
        let cancelled = Arc::new(AtomicBool::new(false));
        {
            let mut calls = lock(&self.calls);
            if calls.len() >= MAX_CALLS {
                return Err(RpcError::new(rpc::BUSY, format!("{MAX_CALLS} calls go on already; try it again later")));
            }
            if calls.contains_key(&id.to_string()) {
                return Err(RpcError::new(rpc::INVALID_REQUEST, "a request with this id goes on already"));
            }
            calls.insert(id.to_string(), Arc::clone(&cancelled));
        }
        let (server, id) = (Arc::clone(self), id.clone());
        std::thread::spawn(move || {
            let progress = |bytes: u64, text: &str| {
                if let Some(token) = token.as_ref().filter(|_| !cancelled.load(Ordering::SeqCst)) {
                    server.wire.send(&json!({
                        "jsonrpc": "2.0", "method": "notifications/progress",
                        "params": { "progressToken": token, "progress": bytes, "message": text },
                    }));
                }
            };
            let is_cancelled = || cancelled.load(Ordering::SeqCst);
            let outcome =
                server.tools.call(&name, arguments, &Call { is_cancelled: &is_cancelled, progress: &progress });
            lock(&server.calls).remove(&id.to_string());
            let result = outcome.and_then(Outcome::result);
            match result.filter(|_| !is_cancelled()) {
                Some(result) => server.wire.send(&rpc::answer(&id, Ok(era::dress(era, result, false)))),
                // The client has said that it wants no answer.
                None => notices::tell(&format!("the call {id} of {name} was cancelled")),
            }
        });
        Ok(())
    }
}
