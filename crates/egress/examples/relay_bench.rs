//! Measures the rate at which one thread passes 1 GiB from one TCP connection of the loopback interface to another:
//! read and write with a buffer of 256 KiB as a busy tunnel has it, and splice(2) through a pipe of 1 MiB. In turn,
//! medians.
//!
//! ```text
//! relay_bench [ROUNDS]     prints one JSON line: {"direct":…,"copy":…,"splice":…} in bytes a second
//! ```
#![allow(clippy::unwrap_used, reason = "a measurement that goes wrong must end")]
#![allow(clippy::disallowed_methods, reason = "it is the client, and clients connect")]

use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

/// Function that passes bytes from the first connection to the second until the end of the stream.
type Relay = fn(&TcpStream, &TcpStream);

const TOTAL: usize = 1 << 30;
const BLOCK: usize = 256 * 1024;
const PIPE: usize = 1 << 20;

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(5, |text| text.parse().unwrap());
    let ways: [Relay; 2] = [copied, spliced];
    let mut direct = Vec::new();
    let mut relayed = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        direct.push(speed(None));
        for (rates, way) in relayed.iter_mut().zip(ways) {
            rates.push(speed(Some(way)));
        }
    }
    let [copy, splice] = relayed.map(median);
    println!("{}", serde_json::json!({"direct": median(direct), "copy": copy, "splice": splice}));
}

fn median(mut rates: Vec<f64>) -> u64 {
    rates.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive and below 2^53")]
    let rate = rates[rates.len() / 2] as u64;
    rate
}

/// Returns the rate from a writing thread to a reading one, in bytes a second.
fn speed(relay: Option<Relay>) -> f64 {
    let (mut writer, mut reader) = match relay {
        None => pair(),
        Some(relay) => {
            let (writer, from) = pair();
            let (to, reader) = pair();
            thread::spawn(move || relay(&from, &to));
            (writer, reader)
        }
    };
    let started = Instant::now();
    let sender = thread::spawn(move || {
        let block = vec![7; BLOCK];
        (0..TOTAL / BLOCK).for_each(|_| writer.write_all(&block).unwrap());
    });
    let (mut left, mut block) = (TOTAL, vec![0; BLOCK]);
    while left > 0 {
        left -= reader.read(&mut block).unwrap();
    }
    sender.join().unwrap();
    #[allow(clippy::cast_precision_loss, reason = "2^30 fits")]
    let bytes = TOTAL as f64;
    bytes / started.elapsed().as_secs_f64()
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn copied(mut from: &TcpStream, mut to: &TcpStream) {
    let mut block = vec![0; BLOCK];
    loop {
        match from.read(&mut block).unwrap() {
            0 => return,
            count => to.write_all(&block[..count]).unwrap(),
        }
    }
}

fn spliced(from: &TcpStream, to: &TcpStream) {
    let (output, input) = pipe().unwrap();
    fcntl_setpipe_size(&input, PIPE).unwrap();
    let flags = SpliceFlags::MOVE;
    loop {
        let mut held = splice(from, None, &input, None, PIPE, flags).unwrap();
        if held == 0 {
            return;
        }
        while held > 0 {
            held -= splice(&output, None, to, None, held, flags | SpliceFlags::MORE).unwrap();
        }
    }
}
