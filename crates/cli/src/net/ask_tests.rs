use super::*;
use nexus_policy::net::{Ingress, Target};
use rustix::pty::OpenptFlags;

const LONG: Duration = Duration::from_secs(20);

/// A question on a terminal of the test, and the end of that terminal with the keys.
struct Asked {
    keys: File,
    prompter: Prompter,
    hold: Arc<Hold>,
    question: Question,
    /// The attempt that waits; without this value, it has gone.
    waits: Option<oneshot::Receiver<Answer>>,
}

fn asked(quiet: Duration) -> Asked {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let keys = rustix::pty::openpt(flags).unwrap();
    rustix::pty::grantpt(&keys).unwrap();
    rustix::pty::unlockpt(&keys).unwrap();
    let name = rustix::pty::ptsname(&keys, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let terminal = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).unwrap();
    let hold = Arc::new(Hold::new().unwrap());
    let prompter = Prompter {
        terminal: terminal.into(),
        hold: Arc::clone(&hold),
        timeout: LONG,
        quiet,
        egress: Arc::default(),
        settled: BTreeMap::new(),
        refuses_all: false,
        withdrawn: None,
    };
    let (answer, waits) = oneshot::channel();
    Asked {
        keys: keys.into(),
        prompter,
        hold,
        question: Question { target: "a.test:443".into(), answer },
        waits: Some(waits),
    }
}

impl Asked {
    /// Draws the question, and does `meanwhile` with the keys and the waiting attempt.
    fn answer(mut self, meanwhile: impl FnOnce(&mut File, &Hold, &mut Option<oneshot::Receiver<Answer>>)) -> Choice {
        let hold = Arc::clone(&self.hold);
        std::thread::scope(|scope| {
            let asker = scope.spawn(|| {
                let end = Instant::now() + LONG;
                let taken = self.hold.take(end, || false).unwrap().unwrap();
                self.prompter.question(&taken, &self.question, end).unwrap()
            });
            while hold.lets_read() {
                std::thread::yield_now();
            }
            hold.hand_over(true);
            meanwhile(&mut self.keys, &hold, &mut self.waits);
            asker.join().unwrap()
        })
    }
}

/// Reads what the terminal shows until `text` has come.
fn shown(keys: &mut File, text: &str) {
    let (mut all, mut one) = (Vec::new(), [0]);
    while !all.ends_with(text.as_bytes()) {
        keys.read_exact(&mut one).unwrap();
        all.push(one[0]);
    }
}

#[test]
fn what_is_typed_in_the_first_moment_of_a_question_is_dropped() {
    for quiet in [Duration::from_millis(100), QUIET] {
        for early in ["r\n", "r", "\u{4}", "s\nr\no"] {
            let began = Instant::now();
            let choice = asked(quiet).answer(|keys, _, _| {
                shown(keys, "wants to reach a.test:443\r\n");
                keys.write_all(early.as_bytes()).unwrap();
                shown(keys, " s) ");
                assert!(began.elapsed() >= quiet, "{early:?}");
                keys.write_all(b"n\n").unwrap();
            });
            assert_eq!(choice, Choice::No, "{early:?}");
        }
    }
}

#[test]
fn the_quiet_time_of_a_question_keeps_no_end_waiting() {
    let began = Instant::now();
    let choice = asked(LONG).answer(|keys, hold, _| {
        shown(keys, "wants to reach a.test:443\r\n");
        hold.end();
    });
    assert_eq!(choice, Choice::Nothing);
    let choice = asked(LONG).answer(|keys, hold, waits| {
        shown(keys, "wants to reach a.test:443\r\n");
        *waits = None;
        hold.nudge();
        shown(keys, "nothing was decided\r\n");
    });
    assert_eq!(choice, Choice::Withdrawn);
    assert!(began.elapsed() < LONG);
}

#[test]
fn an_answer_is_for_the_program_that_asked_where_it_is_known() {
    let asked = |program: Option<&str>| {
        let program = program.map(|path| Program::parse(path).unwrap());
        target_of(&Attempt { target: Target::parse("a.test:443").unwrap(), way: Ingress::Connect, program })
    };
    assert_eq!(question_text(&asked(None)), "the command wants to reach a.test:443");
    let curl = asked(Some("/usr/bin/curl"));
    assert_eq!(question_text(&curl), "/usr/bin/curl wants to reach a.test:443");
    let AnyRule::Name(rule) = rules::approved(&curl).unwrap() else { panic!("a name") };
    assert_eq!(rule.program.unwrap().0, "/usr/bin/curl");
    // Nothing that a process chose as its path reaches a terminal or a profile.
    assert_eq!(asked(Some("/work/x\" wants")), "a.test:443");
}
