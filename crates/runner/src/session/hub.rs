//! The state of a supervisor: the output of its sandbox goes into a ring, and clients come and go. `answer` does what
//! clients ask for, and `attend` drives both.
//!
//! ```text
//!  sandbox ─▶ ring ─▶ viewers, each at its own position            (nobody waits for a viewer)
//!  commander ◀──▶ its own command inside                           (a stuck one stops its own command alone)
//!  stop ─▶ SIGTERM ─▶ SIGKILL        end ─▶ every client gets the ending
//! ```

use crate::live::control::SandboxControl;
use crate::live::full_output::FullOutput;
use crate::live::ports::Ports;
use crate::live::ring::Ring;
use crate::live::signal::SIGHUP;
use crate::notices::Notice;
use crate::secrets::Redaction;
use crate::session::client::{Client, Role};
use crate::session::command::Command;
use crate::session::feed::next_output;
use crate::session::store::{ExitRecord, OwnedSession};
use crate::session::wire::put;
use nexus_driver::MAIN_COMMAND;
use nexus_driver::frames::TerminalSize;
use nexus_model::{ByteText, Plan};
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Bytes of output that are kept.
const RING: usize = 1 << 20;

/// The state of one detached sandbox.
pub struct Hub {
    /// The directory of the sandbox.
    pub own: OwnedSession,
    pub(super) ring: Ring,
    pub(super) clients: BTreeMap<u32, Client>,
    pub(super) commands: BTreeMap<u32, Command>,
    pub(super) next_client: u32,
    pub(super) next_exec: u32,
    pub(super) ports: Ports,
    pub(super) launcher: Option<UnixStream>,
    pub(super) ends_with_launcher: bool,
    /// The same socket after the start, where the end of the other side ends the sandbox.
    pub(super) owner: Option<UnixStream>,
    pub(super) full: Option<FullOutput>,
    pub(super) env: Vec<(ByteText, ByteText)>,
    pub(super) cwd: ByteText,
    /// Keeps secrets out of the output of execs.
    pub(super) redaction: Option<Redaction>,
    pub(super) size: Option<TerminalSize>,
    pub(super) paused_until: Option<Instant>,
    pub(super) ending: Option<ExitRecord>,
    /// The time until which clients may take the last output of their commands.
    pub(super) last_words_until: Option<Instant>,
    pub(super) buffer: Vec<u8>,
    /// Takes the notices of the supervisor.
    pub(super) tell: fn(&Notice),
}

impl Hub {
    /// Makes the hub of a sandbox that is about to be started; it tells `launcher` when the command runs.
    pub fn new(
        own: OwnedSession,
        plan: &Plan,
        launcher: UnixStream,
        full: Option<FullOutput>,
        ports: Ports,
        tell: fn(&Notice),
    ) -> Self {
        Self {
            own,
            ring: Ring::new(RING),
            clients: BTreeMap::new(),
            commands: BTreeMap::new(),
            next_client: 0,
            next_exec: MAIN_COMMAND + 1,
            ports,
            launcher: Some(launcher),
            ends_with_launcher: false,
            owner: None,
            full,
            env: plan.env.clone(),
            cwd: plan.cwd.clone(),
            redaction: None,
            size: None,
            paused_until: None,
            ending: None,
            last_words_until: None,
            buffer: vec![0; 64 * 1024],
            tell,
        }
    }

    /// Ends the sandbox when the process that started it closes its side of the socket, or ends.
    #[must_use]
    pub fn ending_with_launcher(mut self, ends: bool) -> Self {
        self.ends_with_launcher = ends;
        self
    }

    /// Takes the socket to the command that started the sandbox; `None` once that command got its answer.
    pub fn launcher(&mut self) -> Option<UnixStream> {
        self.launcher.take()
    }

    /// Returns the latest output, as frames.
    pub fn output(&self) -> Vec<u8> {
        let (mut out, mut position) = (Vec::new(), 0);
        while let Some(frame) = next_output(&self.ring, &mut position) {
            // Frames of ours are short.
            if put(&mut out, &frame).is_err() {
                break;
            }
        }
        out
    }

    /// Records how the sandbox ended. From now on the clients get that as their answer.
    pub fn end(&mut self, ending: ExitRecord) {
        self.ending = Some(ending);
    }

    /// Reports whether no client is left that waits for a message.
    pub fn is_deserted(&self) -> bool {
        self.clients.is_empty()
    }

    /// Returns the number of clients, of the bytes that wait for them, and the sum of their positions in the output;
    /// while this changes, a client takes something.
    pub fn progress(&self) -> (usize, usize, u64) {
        let positions = self.clients.values().map(|client| match client.role {
            Role::Viewer { position, .. } => position,
            _ => 0,
        });
        (self.clients.len(), self.clients.values().map(Client::waiting).sum(), positions.sum())
    }

    pub(super) fn drop_client(&mut self, number: u32, inside: &mut SandboxControl) {
        let Some(client) = self.clients.remove(&number) else { return };
        if let Role::Commander { exec } = client.role
            && let Some(command) = self.commands.get_mut(&exec)
        {
            command.abandon(Instant::now());
            inside.signal(exec, SIGHUP);
        }
    }

    /// Reports whether the input of this client can be taken now.
    pub(super) fn takes_typing(&self, client: &Client, inside: &SandboxControl) -> bool {
        match client.role {
            Role::Viewer { input: true, .. } => inside.takes_input(),
            Role::Commander { exec } => self.commands.get(&exec).is_none_or(Command::takes_input),
            _ => true,
        }
    }

    pub(super) fn has_room(&self, command: &Command) -> bool {
        command.client.and_then(|number| self.clients.get(&number)).is_none_or(Client::has_room)
    }
}
