//! Random runs that rename files, files with several names and links, and random accepts of parts of them, kills and rejects:
//! what the layer had a copy of is in the workspace or in what was kept, however often a part was accepted.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, dying, has, run_operations_of_parent};
use nexus_layer::{Layer, LayerMode, Rules, Workspace, abandon, recover, roll_back};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
#[ignore = "the child of the other tests"]
fn child_runs_operations() {
    run_operations_of_parent();
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn pick(&mut self, names: &[&'static str]) -> Vec<u8> {
        names[usize::try_from(self.below(names.len() as u64)).unwrap()].as_bytes().to_vec()
    }
}

const NAMES: [&str; 8] = ["a", "b", "c", "l", "d/a", "d/b", "d/l", "e"];

/// Texts of the user, one for each file or link.
const TEXTS: [&str; 5] = ["text of a", "text of b", "text of c", "text of d/a", "target of l"];

fn base(random: &mut Random) -> Vec<Op> {
    let path = |text: &str| text.as_bytes().to_vec();
    let mut ops = vec![Op::Mkdir(path("d")), Op::Symlink(path(TEXTS[4]), path("l"))];
    ops.extend(["a", "b", "c", "d/a"].iter().zip(TEXTS).map(|(name, text)| Op::Write(path(name), text.into())));
    if random.below(2) == 0 {
        ops.push(Op::Link(path("a"), path("d/b")));
    }
    if random.below(3) == 0 {
        ops.push(Op::Link(path("l"), path("d/l")));
    }
    ops
}

fn run(random: &mut Random) -> Vec<Op> {
    let one = |random: &mut Random| match random.below(12) {
        0..=5 => Op::Rename(random.pick(&NAMES), random.pick(&NAMES)),
        6 | 7 => Op::Remove(random.pick(&NAMES)),
        8 => Op::Append(random.pick(&NAMES), " and more".into()),
        9 => Op::Link(random.pick(&NAMES), random.pick(&NAMES)),
        10 => Op::Touch(random.pick(&NAMES)),
        _ => Op::RemoveTree(b"d".to_vec()),
    };
    (0..=random.below(5) + 1).map(|_| one(random)).collect()
}

fn play(mode: LayerMode, seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851);
    let (base, run) = (base(&mut random), run(&mut random));
    let scene = Scene::one_of_many(mode, &base);
    let workspace = Workspace::open(&scene.ws()).unwrap().with_leases(nexus_jail::lease::read_lease);
    let (layers, mut log) = (scene.path("layers"), Vec::new());
    // An ordinary user's overlay parts the names of a file, so that a rename between two of them differs from the plain one.
    let Ok(layer) = catch_unwind(AssertUnwindSafe(|| scene.layer(&run))) else { return };
    let copied: Vec<_> = TEXTS.iter().filter(|text| has(&layer.upper(), text)).collect();
    layer.park(&workspace, &Rules::default()).unwrap();
    drop(layer);
    for _ in 0..=random.below(4) {
        let only: Vec<_> = (0..=random.below(3)).map(|_| random.pick(&NAMES)).collect();
        let kill = (random.below(3) == 0).then(|| random.below(25) + 1);
        log.push(format!(
            "accept {:?} {kill:?}",
            only.iter().map(|one| String::from_utf8_lossy(one)).collect::<Vec<_>>()
        ));
        let Ok(mut layer) = Layer::open(&layers, "run") else { break };
        layer.note_shown().unwrap();
        if let Some(nth) = kill {
            layer.set_faults(dying(&scene, nth));
        }
        let rules = Rules { only: Some(only.into_iter().map(Into::into).collect()), ..Rules::default() };
        match catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &rules))) {
            Ok(done) => log.push(format!("{:?}", done.map(|done| (done.state, done.left)))),
            Err(_) => drop(layer),
        }
        if random.below(2) == 0 {
            log.push(format!("back {:?}", roll_back(&layers, "run", &workspace)));
        }
        log.push(format!("{:?}", recover(&layers, "run", &workspace)));
    }
    log.push(format!("{:?}", abandon(&layers, "run", || Ok(()))));
    for text in copied {
        let is_there = has(&scene.ws(), text) || has(&layers, text);
        assert!(is_there, "{mode:?} {seed}: {text:?} is lost\n{base:?}\n{run:?}\n{}", log.join("\n"));
    }
}

/// `NEXUS_MODEL_SEED` replays one seed, and `NEXUS_SOAK_SCHEDULES` plays as many.
#[test]
fn no_copy_of_a_renamed_entry_is_lost_by_accepts_of_parts() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("NEXUS_MODEL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("NEXUS_SOAK_SCHEDULES").unwrap_or(150),
    };
    std::thread::scope(|scope| {
        for mode in [LayerMode::Root, LayerMode::User] {
            let seeds = seeds.clone();
            scope.spawn(move || seeds.for_each(|seed| play(mode, seed)));
        }
    });
}
