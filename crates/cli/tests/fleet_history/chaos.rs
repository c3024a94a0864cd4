//! The processes of a fleet, and the faults that a test makes on them.

use super::fleet_support::Scene;
use super::record::{Fault, Record, Seen};
use super::relay::Switches;
use super::{CAPACITY, LEASE};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Numbers from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    pub fn ms(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(low + self.below(high - low))
    }
}

/// The processes and the faults that the test makes on them.
pub struct Chaos {
    pub scene: Scene,
    pub relays: Vec<(SocketAddr, Arc<Switches>)>,
    pub record: Arc<Record>,
    pub port: u16,
    /// File by which the wall clock of the control plane is set.
    pub clock: Option<PathBuf>,
}

impl Chaos {
    pub fn mothership(&mut self) {
        let address = format!("127.0.0.1:{}", self.port);
        let clock = self.clock.clone();
        self.scene.mothership_by(&["--listen", &address], |mut command| {
            if let Some(file) = &clock {
                super::clock::set_by(file, &mut command);
            }
            command
        });
    }

    pub fn daemon(&mut self, number: usize) {
        let label = if number == 0 { "stopped=yes" } else { "stopped=no" };
        self.scene.daemon(number, &["--max-concurrent", &CAPACITY.to_string(), "--label", label]);
    }

    pub fn fault(&self, fault: Fault, name: &str, begins: bool) {
        self.record.add(Seen::Fault { fault, name: name.to_owned(), begins });
    }

    pub fn kill(&mut self, target: Target, pause: Duration) {
        let name = target.name();
        self.fault(Fault::Kill, &name, true);
        self.scene.kill(&name);
        std::thread::sleep(pause);
        match target {
            Target::Mothership => self.mothership(),
            Target::Daemon(number) => self.daemon(number),
        }
        self.fault(Fault::Kill, &name, false);
    }

    pub fn stop(&self, fault: Fault, target: Target, pause: Duration) {
        let name = target.name();
        self.scene.signal(&name, Signal::STOP);
        self.fault(fault, &name, true);
        std::thread::sleep(pause);
        self.fault(fault, &name, false);
        self.scene.signal(&name, Signal::CONT);
    }

    pub fn cut(&self, number: usize, pause: Duration) {
        let name = format!("daemon{number}");
        self.fault(Fault::Cut, &name, true);
        self.relays[number].1.set_cut(true);
        std::thread::sleep(pause);
        self.relays[number].1.set_cut(false);
        self.fault(Fault::Cut, &name, false);
    }

    pub fn lose_answers(&self, number: usize, pause: Duration) {
        let name = format!("daemon{number}");
        self.fault(Fault::LoseAnswers, &name, true);
        self.relays[number].1.lose_next();
        self.relays[number].1.lost.store(400, Ordering::SeqCst);
        std::thread::sleep(pause);
        self.relays[number].1.lost.store(0, Ordering::SeqCst);
        self.fault(Fault::LoseAnswers, &name, false);
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    Mothership,
    Daemon(usize),
}

impl Target {
    pub fn name(self) -> String {
        match self {
            Self::Mothership => "mothership".to_owned(),
            Self::Daemon(number) => format!("daemon{number}"),
        }
    }
}

/// Makes faults until the time is over, each kind once at least. Daemon 0 is left to its long stop.
pub fn make_faults(chaos: &mut Chaos, random: &mut Random, until: Instant) {
    // The kills of the control plane come first: nothing is taken back for the life of a lease after one.
    let mut kinds = vec![0, 1, 2, 3, 4, 5];
    let mut turn = 0;
    let is_long = until.saturating_duration_since(Instant::now()) > LEASE;
    while Instant::now() < until || turn < kinds.len() {
        if turn >= kinds.len() {
            kinds.push(if is_long { random.below(6) } else { 1 + random.below(5) });
        }
        let number = 1 + usize::try_from(random.below(2)).unwrap();
        match kinds[turn] {
            0 => chaos.kill(Target::Mothership, random.ms(50, 600)),
            1 => chaos.kill(Target::Daemon(number), random.ms(50, 600)),
            2 => chaos.stop(Fault::Stop, Target::Daemon(number), random.ms(300, 2500)),
            3 => chaos.stop(Fault::Stop, Target::Mothership, random.ms(300, 1500)),
            4 => chaos.cut(number, random.ms(300, 2500)),
            _ => chaos.lose_answers(number, random.ms(1500, 3000)),
        }
        std::thread::sleep(random.ms(50, 500));
        turn += 1;
    }
}
