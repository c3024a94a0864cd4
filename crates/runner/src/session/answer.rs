//! Answers the requests of a supervisor's clients.
//!
//! ```text
//!  New ─Hello─▶ Greeted ─┬─ Attach, Logs ─▶ Viewer ──────┐
//!                        ├─ Exec ─────────▶ Commander ───┼─ everything sent ─▶ Leaving
//!                        └─ Stop, Wait ───▶ Waiter ──────┘
//! ```
//! A message that does not belong to its role drops the client, and no other client notices.

use crate::live::control::SandboxControl;
use crate::live::output::Stream;
use crate::live::pipes::{pipe, stdin_pair};
use crate::live::signal::{SIGKILL, SIGTERM};
use crate::session::client::Role;
use crate::session::command::Command;
use crate::session::feed::feed;
use crate::session::hub::Hub;
use crate::session::wire::{ClientMessage, ServerMessage, VERSION};
use nexus_driver::frames::TerminalSize;
use nexus_driver::{AskError, MAIN_COMMAND, MoreCommand, Stdio};
use nexus_model::ByteText;
use nexus_model::exit::REFUSED;
use rustix::fd::AsFd;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// Most clients with a request that may take long; further ones are refused, unless they end the sandbox.
pub(super) const MAX_CLIENTS: usize = 128;

impl Hub {
    /// Carries out the requests of a client, as far as that is possible without waiting.
    pub fn obey(&mut self, number: u32, inside: &mut SandboxControl) {
        loop {
            let Some(client) = self.clients.get(&number) else { return };
            if !self.takes_typing(client, inside) {
                return;
            }
            let Some(client) = self.clients.get_mut(&number) else { return };
            match client.reader.next::<ClientMessage>() {
                Ok(Some(ask)) => {
                    if !self.answer(number, ask, inside) {
                        return self.drop_client(number, inside);
                    }
                }
                Ok(None) => return,
                // Not our protocol.
                Err(_) => return self.drop_client(number, inside),
            }
        }
    }

    /// `false` when what it asks does not belong here.
    fn answer(&mut self, number: u32, ask: ClientMessage, inside: &mut SandboxControl) -> bool {
        let over = self.ending.is_some();
        // Beside the clients that everybody may have, there is always a place for one that ends the sandbox.
        let is_full = self.clients.values().filter(|client| !client.is_new()).count() >= MAX_CLIENTS;
        let end = self.ring.end();
        let terminal = self.own.about.terminal;
        let Some(client) = self.clients.get_mut(&number) else { return false };
        let viewer = |follow, input| Role::Viewer { position: 0, live_at: Some(end), follow, input };
        match (client.role, ask) {
            // kill(2) knows no other numbers; 0 would only ask whether the process exists.
            (_, ClientMessage::Signal(signal) | ClientMessage::Stop { signal, .. }) if !(1..=64).contains(&signal) => {
                return false;
            }
            (Role::New, ClientMessage::Hello { version }) => {
                client.tell(&ServerMessage::Hello { version: VERSION, terminal });
                client.role = Role::Greeted;
                if version != VERSION {
                    client.refuse(REFUSED, format!("this sandbox was started by another version of nexus ({VERSION})"));
                }
            }
            (
                Role::Greeted,
                ClientMessage::Attach { .. }
                | ClientMessage::Logs { .. }
                | ClientMessage::Wait
                | ClientMessage::Exec { .. },
            ) if is_full => {
                client.refuse(REFUSED, format!("the sandbox has {MAX_CLIENTS} clients already; try it again later"));
            }
            (Role::Greeted, ClientMessage::Attach { input, size }) => {
                client.role = viewer(true, input);
                client.size = size;
                self.resize(number, true, inside);
            }
            (Role::Greeted, ClientMessage::Logs { follow }) => client.role = viewer(follow, false),
            (Role::Greeted, ClientMessage::Wait) => client.role = Role::Waiter,
            (Role::Greeted, ClientMessage::Stop { signal: signal @ (SIGTERM | SIGKILL), grace_ms }) => {
                client.role = Role::Waiter;
                if !over {
                    inside.end(signal, grace_ms.map(Duration::from_millis));
                }
            }
            (Role::Greeted, ClientMessage::Exec { argv, env, cwd, terminal, input }) if !over => {
                let command = self.more_command(argv, env, cwd);
                if let Err(why) = self.exec(number, &command, terminal, input, inside)
                    && let Some(client) = self.clients.get_mut(&number)
                {
                    client.refuse(REFUSED, why);
                }
            }
            (Role::Greeted, ClientMessage::Exec { .. }) => {
                client.refuse(REFUSED, "the sandbox has just ended".to_owned());
            }
            (Role::Viewer { input: true, .. }, ClientMessage::Input(bytes)) => {
                self.resize(number, false, inside);
                inside.input(&bytes.0);
            }
            (Role::Viewer { input: true, .. }, ClientMessage::EndInput) => inside.end_input(),
            (Role::Viewer { .. }, ClientMessage::Resize(size)) => {
                client.size = Some(size);
                self.resize(number, false, inside);
            }
            (Role::Viewer { .. }, ClientMessage::Signal(signal)) => inside.signal(MAIN_COMMAND, signal),
            (Role::Commander { exec }, ask) => match (ask, self.commands.get_mut(&exec)) {
                (ClientMessage::Input(bytes), Some(command)) => client.taken(command.input(&bytes.0)),
                (ClientMessage::EndInput, Some(command)) => command.end_input(),
                (ClientMessage::Resize(size), Some(_)) => inside.resize(Some(exec), size),
                (ClientMessage::Signal(signal), Some(_)) => inside.signal(exec, signal),
                (ClientMessage::Close { err }, Some(command)) => {
                    command.close(if err { Stream::Err } else { Stream::Out });
                }
                (_, None) => {}
                _ => return false,
            },
            // It does not know yet that it has received everything.
            (Role::Leaving, _) => {}
            _ => return false,
        }
        true
    }

    /// Sets the terminal to the size of the client that acted last. With `redraws`, a program that is already there is
    /// to draw itself again for a client that has just connected, even if the size stays: so the size is changed and
    /// changed back.
    fn resize(&mut self, number: u32, redraws: bool, inside: &mut SandboxControl) {
        let Some(size) = self.clients.get(&number).and_then(|client| client.size) else { return };
        if !self.own.about.terminal {
            return;
        }
        if redraws && self.size == Some(size) {
            inside.resize(None, TerminalSize { rows: size.rows.saturating_add(1), ..size });
        }
        if redraws || self.size != Some(size) {
            self.size = Some(size);
            inside.resize(None, size);
        }
    }

    fn more_command(
        &self,
        argv: Vec<ByteText>,
        changes: Vec<(ByteText, ByteText)>,
        cwd: Option<ByteText>,
    ) -> MoreCommand {
        let mut env: BTreeMap<ByteText, ByteText> = self.env.iter().cloned().collect();
        env.extend(changes);
        MoreCommand { argv, env: env.into_iter().collect(), cwd: cwd.unwrap_or_else(|| self.cwd.clone()) }
    }

    fn exec(
        &mut self,
        number: u32,
        command: &MoreCommand,
        terminal: Option<TerminalSize>,
        input: bool,
        inside: &mut SandboxControl,
    ) -> Result<(), String> {
        let exec = self.next_exec;
        let made = if let Some(size) = terminal {
            inside.exec(exec, command, Stdio::Terminal(size)).map_err(|error| error.to_string())?;
            Command::new(number, true, [None, None], None).redacted(self.redaction.as_ref())
        } else {
            let pipes = || -> io::Result<_> { Ok((pipe()?, pipe()?, stdin_pair(input)?)) };
            let ((out, out_there), (err, err_there), (to, from)) = pipes().map_err(|error| error.to_string())?;
            for fd in [&out, &err] {
                // What a command left in the background may hold its output open without writing.
                rustix::fs::fcntl_setfl(fd, rustix::fs::OFlags::NONBLOCK).map_err(|error| error.to_string())?;
            }
            let stdio = Stdio::Pipes([from.as_fd(), out_there.as_fd(), err_there.as_fd()]);
            inside.exec(exec, command, stdio).map_err(|error: AskError| error.to_string())?;
            Command::new(number, false, [Some(out), Some(err)], to).redacted(self.redaction.as_ref())
        };
        self.next_exec += 1;
        self.commands.insert(exec, made);
        if let Some(client) = self.clients.get_mut(&number) {
            client.role = Role::Commander { exec };
        }
        Ok(())
    }

    /// Sends every client the output and messages that are due.
    pub fn serve(&mut self) {
        for client in self.clients.values_mut() {
            while client.has_room() && feed(client, &self.ring, self.ending.as_ref()) {}
        }
    }
}
