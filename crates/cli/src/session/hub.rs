//! The supervisor's side of a sandbox: its output goes into a ring, and clients come and go. What clients ask for is
//! done in `answer`.
//!
//! ```text
//!  sandbox ─▶ ring ─▶ viewers, each at its own position            (nobody waits for a viewer)
//!  commander ◀──▶ its own command inside                           (a stuck one stops its own command alone)
//!  stop ─▶ SIGTERM ─▶ SIGKILL        end ─▶ everybody is told, who listens
//! ```

use super::answer::{next_output, refuse};
use super::client::{self, Client, Role};
use super::command::Command;
use super::store::{ExitRecord, Own};
use super::wire::{Launched, Tell, put};
use crate::run::{FullOutput, Order};
use nexus_driver::frames::TerminalSize;
use nexus_driver::{CommandEvent, Ended, Event, LEADER};
use nexus_model::exit::REFUSED;
use nexus_model::{ByteText, ExitStatus};
use nexus_runner::live::attendant::{Attendant, KeptOutput, SandboxEvent, Watched};
use nexus_runner::live::control::SandboxControl;
use nexus_runner::live::output::Stream;
use nexus_runner::live::ports::{PortToken, Ports};
use nexus_runner::live::ring::Ring;
use nexus_runner::live::signal::{SIGHUP, SIGKILL, SIGTERM};
use rustix::event::PollFlags;
use rustix::fd::AsFd;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Bytes of output that are kept.
const RING: usize = 1 << 20;
/// Most clients with a request that may take long; further ones are refused, unless they end the sandbox.
pub(super) const MAX_CLIENTS: usize = 128;
/// Clients that are accepted beyond that, so that they can say what they want; further ones wait to be accepted.
const MAX_NEW: usize = 32;
/// Time that a new client has until it has said what it wants.
const GREETING: Duration = Duration::from_secs(10);
/// Time for which nothing is accepted when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
/// Time that a client has for the last output of its command, after the end of the sandbox. The end of the run waits for it, so that
/// it is as long as a terminal gets.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Everything about one detached sandbox.
pub struct Hub {
    /// The directory of the sandbox.
    pub own: Own,
    pub(super) ring: Ring,
    pub(super) clients: BTreeMap<u32, Client>,
    pub(super) commands: BTreeMap<u32, Command>,
    pub(super) next_client: u32,
    pub(super) next_exec: u32,
    pub(super) ports: Ports,
    pub(super) launcher: Option<UnixStream>,
    pub(super) full: Option<FullOutput>,
    pub(super) env: Vec<(ByteText, ByteText)>,
    pub(super) cwd: ByteText,
    pub(super) size: Option<TerminalSize>,
    pub(super) paused_until: Option<Instant>,
    pub(super) ending: Option<ExitRecord>,
    /// The time until which clients may take the last output of their commands.
    pub(super) last_words_until: Option<Instant>,
    pub(super) buffer: Vec<u8>,
}

/// A descriptor on which the supervisor waits.
#[derive(Debug, Clone, Copy)]
pub enum Token {
    Listener,
    Client(u32),
    Output(u32, Stream),
    Input(u32),
    Port(PortToken),
}

impl Hub {
    /// Makes the hub of a sandbox that is about to be started; it tells `launcher` when the command runs.
    pub fn new(own: Own, order: &Order, launcher: UnixStream, full: Option<FullOutput>, ports: Ports) -> Self {
        Self {
            own,
            ring: Ring::new(RING),
            clients: BTreeMap::new(),
            commands: BTreeMap::new(),
            next_client: 0,
            next_exec: LEADER + 1,
            ports,
            launcher: Some(launcher),
            full,
            env: order.run.plan.env.clone(),
            cwd: order.run.plan.cwd.clone(),
            size: None,
            paused_until: None,
            ending: None,
            last_words_until: None,
            buffer: vec![0; 64 * 1024],
        }
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

    fn accept(&mut self, now: Instant) {
        match client::accept(&self.own.listener) {
            Ok(Some(socket)) => {
                self.clients.insert(self.next_client, Client::new(socket, now));
                self.next_client += 1;
            }
            // Somebody else's, or it has left again.
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.paused_until = Some(now + PAUSE),
        }
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

    fn about_command(&mut self, exec: u32, event: CommandEvent, now: Instant) {
        let Some(command) = self.commands.get_mut(&exec) else { return };
        match event {
            CommandEvent::Started(_) => {}
            CommandEvent::Ended(ended) => command.ended(ended, now),
            CommandEvent::NotStarted(reason) => {
                if let Some(client) = command.client.and_then(|number| self.clients.get_mut(&number)) {
                    refuse(client, reason.exit_code().unwrap_or(REFUSED), reason.to_string());
                }
                self.commands.remove(&exec);
            }
        }
    }

    /// Those commands that are over.
    fn settle_commands(&mut self) {
        let clients = &mut self.clients;
        self.commands.retain(|_, command| {
            if let Some(ended) = command.ended.filter(|_| command.is_over())
                && let Some(client) = command.client.and_then(|number| clients.get_mut(&number))
            {
                client.tell(&Tell::Ended { exit: ended.status.shell_code(), message: String::new() });
                client.role = Role::Leaving;
            }
            !command.is_over()
        });
    }

    fn read_command(&mut self, exec: u32, stream: Stream, now: Instant) {
        let Some(command) = self.commands.get_mut(&exec) else { return };
        let count = command.read(stream, &mut self.buffer, now);
        if count > 0
            && let Some(client) = command.client.and_then(|number| self.clients.get_mut(&number))
        {
            let bytes = ByteText(self.buffer[..count].to_vec());
            client.tell(&Tell::Output { err: stream == Stream::Err, bytes });
        }
    }

    fn write(&mut self, number: u32, inside: &mut SandboxControl) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let there = client.waiting() == 0 || client.write();
        if !there || (client.role == Role::Leaving && client.waiting() == 0) {
            self.drop_client(number, inside);
        }
    }

    fn has_room(&self, command: &Command) -> bool {
        command.client.and_then(|number| self.clients.get(&number)).is_none_or(Client::has_room)
    }
}

impl Attendant for Hub {
    type Token = Token;

    /// Always takes output: the ring has room for everything.
    fn takes(&self, _stream: Stream) -> bool {
        true
    }

    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<bool> {
        if let Some(full) = &mut self.full {
            full.file.write_all(bytes)?;
        }
        self.ring.push(stream, bytes);
        Ok(false)
    }

    fn watch<'a>(&'a self, inside: &SandboxControl, watched: &mut Watched<'a, Token>) {
        if self.clients.len() < MAX_CLIENTS + MAX_NEW && self.paused_until.is_none() {
            watched.push((Token::Listener, self.own.listener.as_fd(), PollFlags::IN));
        }
        for (number, client) in &self.clients {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, self.takes_typing(client, inside));
            flags.set(PollFlags::OUT, client.waiting() > 0 || client.role == Role::Leaving);
            watched.push((Token::Client(*number), client.socket.as_fd(), flags));
        }
        for (exec, command) in &self.commands {
            command.watch(self.has_room(command), |stream, fd, flags| {
                let token = stream.map_or(Token::Input(*exec), |stream| Token::Output(*exec, stream));
                watched.push((token, fd, flags));
            });
        }
        self.ports.watch(|token, fd, flags| watched.push((Token::Port(token), fd, flags)));
    }

    fn ready(&mut self, token: Token, found: PollFlags, inside: &mut SandboxControl) -> io::Result<()> {
        let now = Instant::now();
        match token {
            Token::Listener => self.accept(now),
            Token::Client(number) => {
                if found.contains(PollFlags::IN)
                    && let Some(client) = self.clients.get_mut(&number)
                {
                    let there = client.read();
                    self.obey(number, inside);
                    if !there {
                        self.drop_client(number, inside);
                    }
                } else if found.intersects(PollFlags::HUP | PollFlags::ERR) {
                    self.drop_client(number, inside);
                }
                if found.contains(PollFlags::OUT) {
                    self.write(number, inside);
                }
            }
            Token::Output(exec, stream) => self.read_command(exec, stream, now),
            Token::Input(exec) => {
                if let Some(command) = self.commands.get_mut(&exec) {
                    let taken = command.write();
                    if let Some(client) = command.client.and_then(|number| self.clients.get_mut(&number)) {
                        client.taken(taken);
                    }
                }
            }
            Token::Port(token) => self.ports.ready(token, found, inside),
        }
        Ok(())
    }

    /// Ends the sandbox for every signal but SIGHUP: the terminal on which it was started means nothing to it.
    fn signal(&mut self, number: u8, inside: &mut SandboxControl) -> io::Result<()> {
        if number != SIGHUP {
            inside.end(SIGTERM, None);
        }
        Ok(())
    }

    fn event(&mut self, event: SandboxEvent, inside: &mut SandboxControl) -> io::Result<()> {
        match event {
            SandboxEvent::Started => {
                self.own.started()?;
                let mut bytes = Vec::new();
                let told = put(
                    &mut bytes,
                    &Launched::Started { id: self.own.about.id.to_string(), published: self.ports.published() },
                );
                let sent = self.launcher.take().map(|mut launcher| launcher.write_all(&bytes));
                // Whoever wanted it is gone, and nobody else knows of it.
                if told.is_err() || sent.is_none_or(|sent| sent.is_err()) {
                    inside.end(SIGTERM, None);
                }
            }
            SandboxEvent::Other(Event::Terminal { exec, master }) => {
                if let Some(command) = self.commands.get_mut(&exec)
                    && command.client.is_some()
                {
                    command.show(master)?;
                }
            }
            SandboxEvent::Other(Event::Command { exec, event }) => self.about_command(exec, event, Instant::now()),
            SandboxEvent::Other(Event::Forwarded { forward, socket }) => self.ports.forwarded(forward, socket),
            SandboxEvent::Other(Event::ForwardFailed { forward, .. }) => self.ports.failed(forward),
            SandboxEvent::Other(_) => {}
        }
        Ok(())
    }

    fn next_event(&self) -> Option<Instant> {
        let silent = self.clients.values().filter(|client| client.is_new());
        let greetings = silent.map(|client| client.since + GREETING);
        let commands = self.commands.values().filter_map(Command::next_event);
        let own = [self.ports.next_event(), self.paused_until, self.last_words_until].into_iter().flatten();
        greetings.chain(commands).chain(own).min()
    }

    fn tick(&mut self, now: Instant, inside: &mut SandboxControl) -> io::Result<()> {
        if self.paused_until.is_some_and(|at| now >= at) {
            self.paused_until = None;
        }
        self.ports.tick(now);
        if self.last_words_until.is_some_and(|at| now >= at) {
            self.last_words_until = None;
            let late: Vec<u32> = self.commands.values().filter_map(|command| command.client).collect();
            for number in late {
                self.drop_client(number, inside);
            }
        }
        let rooms: Vec<bool> = self.commands.values().map(|command| self.has_room(command)).collect();
        for ((exec, command), has_room) in self.commands.iter_mut().zip(rooms) {
            if command.tick(now, has_room) {
                inside.signal(*exec, SIGKILL);
            }
        }
        self.settle_commands();
        let numbers: Vec<u32> = self.clients.keys().copied().collect();
        for number in numbers {
            self.obey(number, inside);
            let late = |client: &Client| client.is_new() && now >= client.since + GREETING;
            if self.clients.get(&number).is_some_and(late) {
                self.drop_client(number, inside);
            }
        }
        self.serve();
        Ok(())
    }

    fn give_up(&mut self, inside: &mut SandboxControl) {
        self.ports.drop_all();
        self.last_words_until = Some(Instant::now());
        let late: Vec<u32> = self.commands.values().filter_map(|command| command.client).collect();
        for number in late {
            self.drop_client(number, inside);
        }
        self.settle_commands();
    }

    fn lingers(&mut self) {
        crate::notices::tell(
            "The command has ended, and the kernel still frees what its processes held. nexus waits for that.",
        );
    }

    fn sandbox_is_dead(&mut self) {
        self.ports.close();
        self.last_words_until = Some(Instant::now() + LAST_WORDS);
        let killed = Ended { status: ExitStatus::Signal(SIGKILL), cpu_us: 0, max_rss_bytes: 0 };
        for command in self.commands.values_mut().filter(|command| command.ended.is_none()) {
            command.ended(killed, Instant::now());
        }
    }

    /// Reports whether all ports and commands are done. Clients get the ending of the sandbox when it is known.
    fn is_done(&self) -> bool {
        self.ports.is_done() && self.commands.is_empty()
    }

    fn finish(&mut self) -> io::Result<KeptOutput> {
        if let Some(full) = self.full.take() {
            full.finish()?;
        }
        Ok((None, 0))
    }
}
