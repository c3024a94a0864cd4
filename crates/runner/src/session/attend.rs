//! Drives a detached sandbox and its clients, as the attendant of its pump.

use crate::live::attendant::{Attendant, KeptOutput, SandboxEvent, Watched};
use crate::live::control::SandboxControl;
use crate::live::output::Stream;
use crate::live::ports::PortToken;
use crate::live::signal::{SIGHUP, SIGKILL, SIGTERM};
use crate::notices::Notice;
use crate::secrets::Redaction;
use crate::session::answer::MAX_CLIENTS;
use crate::session::client::{self, Client, Role};
use crate::session::command::Command;
use crate::session::hub::Hub;
use crate::session::wire::{Launched, ServerMessage, put};
use nexus_driver::{CommandEvent, Ended, Event};
use nexus_model::exit::REFUSED;
use nexus_model::{ByteText, ExitStatus};
use rustix::event::PollFlags;
use rustix::fd::AsFd;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Clients that are accepted beyond `MAX_CLIENTS`, so that they can say what they want; further ones wait to be accepted.
const MAX_NEW: usize = 32;
/// Time that a new client has until it has said what it wants.
const GREETING: Duration = Duration::from_secs(10);
/// Time for which nothing is accepted when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
/// Time that a client has for the last output of its command, after the end of the sandbox. The end of the run waits for it, so that
/// it is as long as a terminal gets.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Time between SIGTERM and SIGKILL for a command whose owner has ended.
const OWNERLESS: Duration = Duration::from_millis(500);

/// A descriptor on which the supervisor waits.
#[derive(Debug, Clone, Copy)]
pub enum Token {
    /// The socket to which clients connect.
    Listener,
    /// The connection of a client.
    Client(u32),
    /// An output of an exec.
    Output(u32, Stream),
    /// The input of an exec.
    Input(u32),
    /// A published port or a connection to one.
    Port(PortToken),
    /// The process that the sandbox ends with.
    Owner,
}

impl Hub {
    fn accept(&mut self, now: Instant) {
        match client::accept(&self.own.listener) {
            Ok(Some(socket)) => {
                self.clients.insert(self.next_client, Client::new(socket, now));
                self.next_client += 1;
            }
            // A client of another user, or one that has left again.
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.paused_until = Some(now + PAUSE),
        }
    }

    fn about_command(&mut self, exec: u32, event: CommandEvent, now: Instant) {
        let Some(command) = self.commands.get_mut(&exec) else { return };
        match event {
            CommandEvent::Started(_) => {}
            CommandEvent::Ended(ended) => command.ended(ended, now),
            CommandEvent::NotStarted(reason) => {
                if let Some(client) = command.client.and_then(|number| self.clients.get_mut(&number)) {
                    client.refuse(reason.exit_code().unwrap_or(REFUSED), reason.to_string());
                }
                self.commands.remove(&exec);
            }
        }
    }

    /// Tells the clients of commands that are over, and forgets these.
    fn settle_commands(&mut self) {
        let clients = &mut self.clients;
        self.commands.retain(|_, command| {
            if let Some(ended) = command.ended.filter(|_| command.is_over())
                && let Some(client) = command.client.and_then(|number| clients.get_mut(&number))
            {
                for stream in [Stream::Out, Stream::Err] {
                    let bytes = ByteText(command.rest(stream));
                    if !bytes.0.is_empty() {
                        client.tell(&ServerMessage::Output { err: stream == Stream::Err, bytes });
                    }
                }
                client.tell(&ServerMessage::Ended { exit: ended.status.shell_code(), message: String::new() });
                client.role = Role::Leaving;
            }
            !command.is_over()
        });
    }

    fn read_command(&mut self, exec: u32, stream: Stream, now: Instant) {
        let Some(command) = self.commands.get_mut(&exec) else { return };
        let count = command.read(stream, &mut self.buffer, now);
        let bytes = ByteText(command.passes(stream, &self.buffer[..count]));
        if !bytes.0.is_empty()
            && let Some(client) = command.client.and_then(|number| self.clients.get_mut(&number))
        {
            client.tell(&ServerMessage::Output { err: stream == Stream::Err, bytes });
        }
    }

    fn write(&mut self, number: u32, inside: &mut SandboxControl) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let there = client.waiting() == 0 || client.write();
        if !there || (client.role == Role::Leaving && client.waiting() == 0) {
            self.drop_client(number, inside);
        }
    }
}

impl Attendant for Hub {
    type Token = Token;

    fn redact_commands(&mut self, redaction: &Redaction) {
        self.redaction = Some(redaction.clone());
    }

    /// Always takes output: the ring has room for everything.
    fn takes(&self, _stream: Stream) -> bool {
        true
    }

    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<bool> {
        if let Some(full) = &mut self.full {
            full.write(bytes)?;
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
        watched.extend(self.owner.iter().map(|owner| (Token::Owner, owner.as_fd(), PollFlags::IN)));
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
            // It never writes: this is its end.
            Token::Owner => {
                self.owner = None;
                inside.end(SIGTERM, Some(OWNERLESS));
            }
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
                let framed = put(
                    &mut bytes,
                    &Launched::Started { id: self.own.about.id.to_string(), published: self.ports.published() },
                );
                let mut launcher = self.launcher.take();
                let sent = launcher.as_mut().map(|launcher| launcher.write_all(&bytes));
                self.owner = launcher.filter(|_| self.ends_with_launcher);
                // The command that started the sandbox is gone, and no other process knows its id.
                if framed.is_err() || sent.is_none_or(|sent| sent.is_err()) {
                    inside.end(SIGTERM, None);
                }
            }
            SandboxEvent::Other(Event::Terminal { exec, master }) => {
                if let Some(command) = self.commands.get_mut(&exec)
                    && command.client.is_some()
                {
                    command.set_terminal(master)?;
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

    fn sandbox_lingers(&mut self) {
        (self.tell)(&Notice::Lingers);
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
