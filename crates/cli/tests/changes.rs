//! `nexus changes`: looking at what waits, and deciding.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::process::{Output, Stdio};
use support::{Bench, benches, report, stderr, stdout};

const OLD: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n";

/// A workspace with a run that waits: a file changed in two places, one added, one gone, a hook.
fn waiting() -> Vec<Bench> {
    let script = "sed -i 's/^2$/two/; s/^11$/eleven/' numbers; echo new > sub/added; rm gone; mkdir -p .git/hooks; \
                  echo evil > .git/hooks/pre-commit";
    let all = benches();
    for bench in &all {
        bench.write("numbers", OLD);
        bench.write("gone", "x\n");
        bench.write("sub/kept", "k\n");
        let output = bench.run(["run", "--changes", "review", "--shell", script]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(fs::read_to_string(bench.workspace.join("numbers")).unwrap(), OLD);
        assert!(!bench.workspace.join("sub/added").exists());
    }
    all
}

fn type_in(bench: &Bench, arguments: &[&str], typed: &str) -> Output {
    let mut child =
        bench.nexus(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_review_shows_everything_and_git_applies_its_diff() {
    for bench in waiting() {
        let shown = stdout(&bench.run(["changes", "show"]));
        for line in ["A sub/added  4 B", "D gone  2 B", "M numbers", "[parked: git hook]"] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        let diff = bench.run(["changes", "diff"]).stdout;
        let copy = tempfile::tempdir().unwrap();
        for (name, text) in [("numbers", OLD), ("gone", "x\n")] {
            fs::write(copy.path().join(name), text).unwrap();
        }
        let mut git = std::process::Command::new("git")
            .args(["apply", "--exclude=.git/*", "-"])
            .current_dir(copy.path())
            .env("GIT_CEILING_DIRECTORIES", copy.path().parent().unwrap())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        git.stdin.take().unwrap().write_all(&diff).unwrap();
        assert!(git.wait().unwrap().success(), "{}", String::from_utf8_lossy(&diff));
        assert!(fs::read_to_string(copy.path().join("numbers")).unwrap().contains("two\n3"));
        assert_eq!(fs::read_to_string(copy.path().join("sub/added")).unwrap(), "new\n");
        assert!(!copy.path().join("gone").exists());
    }
}

#[test]
fn accepting_all_leaves_only_what_is_protected() {
    for bench in waiting() {
        let output = bench.run(["changes", "accept"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(fs::read_to_string(bench.workspace.join("numbers")).unwrap().contains("eleven"));
        assert!(!bench.workspace.join("gone").exists());
        assert!(!bench.workspace.join(".git/hooks/pre-commit").exists());
        let again = bench.run(["changes", "accept"]);
        assert_eq!(again.status.code(), Some(125));
        assert!(stderr(&again).contains("--protected"), "{}", stderr(&again));
        let output = bench.run(["changes", "accept", ".git/hooks/pre-commit"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(bench.workspace.join(".git/hooks/pre-commit").exists());
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn some_paths_are_accepted_and_the_rest_rejected() {
    for bench in waiting() {
        let output = bench.run(["changes", "accept", "sub"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(fs::read_to_string(bench.workspace.join("sub/added")).unwrap(), "new\n");
        assert_eq!(fs::read_to_string(bench.workspace.join("numbers")).unwrap(), OLD);
        let output = bench.run(["changes", "reject", "numbers", ".git"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let shown = stdout(&bench.run(["changes", "show"]));
        let (_, shown) = shown.split_once('\n').unwrap();
        assert_eq!(shown, "D gone  2 B\n");
        // What was rejected does not come back with an accept of everything.
        let output = bench.run(["changes", "accept", "--protected"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(fs::read_to_string(bench.workspace.join("numbers")).unwrap(), OLD);
        assert!(!bench.workspace.join(".git/hooks/pre-commit").exists());
        assert!(!bench.workspace.join("gone").exists());
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn hunks_are_accepted_one_by_one() {
    for bench in waiting() {
        let output = type_in(&bench, &["changes", "accept", "--patch", "numbers"], "n\ny\n");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stderr(&output).contains("-2\n+two\n") && stderr(&output).contains("accept? [y,n,a,d,q]"));
        assert_eq!(fs::read_to_string(bench.workspace.join("numbers")).unwrap(), OLD.replace("11", "eleven"));
        let diff = stdout(&bench.run(["changes", "diff", "numbers"]));
        assert!(diff.contains("+two") && !diff.contains("+eleven"), "{diff}");
        let output = type_in(&bench, &["changes", "accept", "--patch"], "q\n");
        // The file with its other half, two entries of the directory, and the hook with its two new directories.
        assert!(stdout(&output).contains("6 changes still wait"), "{}", stdout(&output));
    }
}

#[test]
fn an_outside_edit_is_a_shown_conflict_and_stays() {
    for bench in waiting() {
        fs::write(bench.workspace.join("numbers"), "mine\n").unwrap();
        let output = bench.run(["changes", "accept"]);
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains("since the run numbers changed outside"), "{}", stderr(&output));
        assert_eq!(fs::read_to_string(bench.workspace.join("numbers")).unwrap(), "mine\n");
        // The harmless part can still be had.
        let output = bench.run(["changes", "accept", "sub/added"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(bench.workspace.join("sub/added").exists());
    }
}

#[test]
fn a_conflict_is_marked_and_the_rest_is_accepted() {
    for bench in waiting() {
        fs::write(bench.workspace.join("numbers"), "mine\n").unwrap();
        let shown = stdout(&bench.run(["changes", "show"]));
        let marked = shown.lines().find(|line| line.starts_with("M numbers")).unwrap();
        assert!(marked.contains("[conflict: changed outside]") && shown.contains("accept --rest"), "{shown}");
        assert_eq!(shown.matches("[conflict").count(), 1, "{shown}");
        let json = report(&bench.run(["changes", "show", "--json"]));
        assert_eq!(json["conflicts"][0]["path"]["text"], "numbers", "{json}");
        let output = bench.run(["changes", "accept"]);
        assert!(output.status.code() == Some(125) && stderr(&output).contains("--ours"), "{}", stderr(&output));
        let rest = bench.run(["changes", "accept", "--rest"]);
        assert_eq!(rest.status.code(), Some(0), "{}", stderr(&rest));
        assert!(stdout(&rest).contains("left waiting numbers (changed outside)"), "{}", stdout(&rest));
        assert!(bench.workspace.join("sub/added").exists());
        assert_eq!(fs::read_to_string(bench.workspace.join("numbers")).unwrap(), "mine\n");
        // The version of the run waits still.
        let diff = stdout(&bench.run(["changes", "diff", "numbers"]));
        assert!(diff.contains("numbers") && !diff.is_empty(), "{diff}");
    }
}

#[test]
fn the_rest_is_accepted_around_a_directory_with_a_conflict() {
    for script in ["rm -r d", "rm -r d; echo file > d", "mv d e || cp -r d e"] {
        for bench in benches() {
            bench.write("d/f", "old");
            bench.write("numbers", OLD);
            let script = format!("{script}; echo new > added; echo run > numbers");
            let output = bench.run(["run", "--changes", "review", "--shell", &script]);
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            fs::write(bench.workspace.join("d/f"), "mine").unwrap();
            let rest = bench.run(["changes", "accept", "--rest"]);
            assert_eq!(rest.status.code(), Some(0), "{} {script}: {}", bench.who(), stderr(&rest));
            let text = |name: &str| fs::read_to_string(bench.workspace.join(name)).unwrap();
            // In a layer of root a rename is one: it takes the user's file along.
            let mine = if bench.workspace.join("d").is_dir() { "d/f" } else { "e/f" };
            assert_eq!([mine, "added", "numbers"].map(text), ["mine", "new\n", "run\n"], "{} {script}", bench.who());
            assert!(mine == "d/f" || script.starts_with("mv"), "{} {script}", bench.who());
        }
    }
}

/// The ways of an accept around conflicts, and the plain one.
const WAYS: [&[&str]; 5] = [&[], &["--rest"], &["--ours"], &["--theirs"], &["--merge"]];

#[test]
fn a_renamed_directory_comes_with_what_the_user_wrote_in_it() {
    for way in WAYS {
        for bench in benches() {
            for name in ["d/f1", "d/f2", "d/f3", "d/sub/g"] {
                bench.write(name, "old\n");
            }
            let script = "mv d m; echo run >> m/f1; echo new > m/n; rm m/f2";
            let output = bench.run(["run", "--changes", "review", "--shell", script]);
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            for (name, text) in [("d/f3", "mine\n"), ("d/sub/g", "mine too\n"), ("d/own", "own\n")] {
                fs::write(bench.workspace.join(name), text).unwrap();
            }
            let story = format!("{} {way:?}", bench.who());
            let accepted = bench.run(["changes", "accept"].iter().chain(way));
            let text = |name: &str| fs::read_to_string(bench.workspace.join(name)).unwrap_or_default();
            // A layer of an ordinary user has a new directory, and the removal of the old one.
            let is_renamed = !bench.workspace.join("d").exists();
            let place = if is_renamed { "m" } else { "d" };
            let mine = ["f3", "sub/g", "own"].map(|name| text(&format!("{place}/{name}")));
            assert_eq!(mine, ["mine\n", "mine too\n", "own\n"], "{story}: {}", stderr(&accepted));
            if way.is_empty() && !is_renamed {
                assert_eq!(accepted.status.code(), Some(125), "{story}: {}", stdout(&accepted));
                continue;
            }
            assert_eq!(accepted.status.code(), Some(0), "{story}: {}", stderr(&accepted));
            assert_eq!([text("m/f1"), text("m/n")], ["old\nrun\n", "new\n"], "{story}");
            assert!(!bench.workspace.join("m/f2").exists(), "{story}");
            let is_over = stdout(&accepted).contains("Nothing of this run waits any more");
            assert_eq!(is_over, is_renamed || way == ["--ours"], "{story}: {}", stdout(&accepted));
            assert!(is_renamed || way != ["--ours"] || stdout(&accepted).contains("kept yours of d/"), "{story}");
        }
    }
}

#[test]
fn a_file_that_both_changed_in_a_renamed_directory_is_decided_in_each_way() {
    let lines = |first: &str, last: &str| format!("{first}2\n3\n4\n5\n6\n{last}");
    let (mine, run, both) = (lines("mine\n", "7\n"), lines("1\n", "run\n"), lines("mine\n", "run\n"));
    for way in WAYS {
        for bench in benches().into_iter().filter(|bench| bench.who() == "root") {
            bench.write("d/f", lines("1\n", "7\n"));
            bench.write("d/g", "old\n");
            commit_all(&bench);
            let script = "mv d m; sed -i s/7/run/ m/f; echo new > m/n";
            let output = bench.run(["run", "--changes", "review", "--shell", script]);
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            fs::write(bench.workspace.join("d/f"), &mine).unwrap();
            let accepted = bench.run(["changes", "accept"].iter().chain(way));
            let (told, said) = (stdout(&accepted), stderr(&accepted));
            let text = |name: &str| fs::read_to_string(bench.workspace.join(name)).unwrap_or_default();
            if way.is_empty() {
                assert_eq!((accepted.status.code(), text("d/f")), (Some(125), mine.clone()), "{said}");
                assert!(said.contains("d/f changed outside"), "{said}");
                continue;
            }
            assert_eq!(accepted.status.code(), Some(0), "{way:?}: {said}");
            assert_eq!([text("m/g"), text("m/n")], ["old\n", "new\n"], "{way:?}");
            assert!(!bench.workspace.join("d").exists(), "{way:?}");
            let beside = |what: &str| {
                let names = fs::read_dir(bench.workspace.join("m")).unwrap().map(|entry| entry.unwrap().file_name());
                let name = names.map(|name| name.into_string().unwrap()).find(|name| name.contains(what));
                name.map(|name| (text(&format!("m/{name}")), told.contains(&format!("is m/{name}"))))
            };
            let waits = |of: &str| stdout(&bench.run(["changes", "show"])).contains(of);
            match way[0] {
                "--rest" => {
                    assert!(text("m/f") == mine && told.contains("left waiting d/f"), "{told}");
                    assert!(waits("M m/f"));
                    assert_eq!(bench.run(["changes", "accept", "--theirs"]).status.code(), Some(0));
                    assert_eq!(text("m/f"), run);
                }
                "--ours" => assert!(text("m/f") == mine && told.contains("kept yours of d/f"), "{told}"),
                "--theirs" => {
                    assert_eq!((text("m/f"), beside(".yours-")), (run.clone(), Some((mine.clone(), true))), "{told}");
                }
                _ => {
                    assert_eq!((text("m/f"), beside(".yours-")), (both.clone(), Some((mine.clone(), true))), "{told}");
                    assert_eq!(beside(".theirs-"), Some((run.clone(), true)), "{told}");
                }
            }
            assert!(!waits("m/f"), "{way:?}");
        }
    }
}

#[test]
fn the_own_version_is_kept_when_asked_for() {
    for bench in waiting() {
        fs::write(bench.workspace.join("numbers"), "mine\n").unwrap();
        let kept = bench.run(["changes", "accept", "--ours"]);
        assert_eq!(kept.status.code(), Some(0), "{}", stderr(&kept));
        assert!(stdout(&kept).contains("kept yours of numbers"), "{}", stdout(&kept));
        assert!(bench.workspace.join("sub/added").exists());
        assert_eq!(fs::read_to_string(bench.workspace.join("numbers")).unwrap(), "mine\n");
        assert!(!stdout(&bench.run(["changes", "show"])).contains("M numbers"));
    }
    // Without a conflict it takes everything.
    for bench in waiting() {
        let all = bench.run(["changes", "accept", "--ours"]);
        assert_eq!(all.status.code(), Some(0), "{}", stderr(&all));
        assert!(!stdout(&all).contains("kept yours"), "{}", stdout(&all));
        assert_ne!(fs::read_to_string(bench.workspace.join("numbers")).unwrap(), "mine\n");
    }
}

#[test]
fn the_runs_version_is_taken_and_the_own_one_kept_beside() {
    for bench in waiting() {
        fs::write(bench.workspace.join("numbers"), "mine\n").unwrap();
        let taken = bench.run(["changes", "accept", "--theirs"]);
        assert_eq!(taken.status.code(), Some(0), "{}", stderr(&taken));
        let told = stdout(&taken);
        let copy = told.split("took the run's version of numbers; yours is ").nth(1).unwrap().lines().next().unwrap();
        assert!(copy.starts_with("numbers.yours-"), "{told}");
        assert_eq!(fs::read_to_string(bench.workspace.join(copy)).unwrap(), "mine\n");
        assert_ne!(fs::read_to_string(bench.workspace.join("numbers")).unwrap(), "mine\n");
        assert!(bench.workspace.join("sub/added").exists());
    }
    // Without a conflict nothing is kept beside.
    for bench in waiting() {
        let all = bench.run(["changes", "accept", "--theirs"]);
        assert_eq!(all.status.code(), Some(0), "{}", stderr(&all));
        let names = fs::read_dir(&bench.workspace).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(
            !names.map(|name| name.into_string().unwrap()).any(|name| name.contains(".yours-")),
            "{}",
            stdout(&all)
        );
    }
}

/// Commits all of a workspace, with a moment before and after it: git knows no change within one moment.
fn commit_all(bench: &Bench) {
    let script = "sleep 0.05; git init -q && git add . && git -c user.name=n -c user.email=n@localhost commit -q -m First; \
                  s=$?; sleep 0.05; exit $s";
    assert!(bench.command("sh").args(["-c", script]).status().unwrap().success());
}

#[test]
fn the_changes_of_both_are_merged_where_git_knows_the_file() {
    for bench in benches() {
        bench.write("numbers", OLD);
        bench.write("other", OLD);
        commit_all(&bench);
        // Changed by the user while the command runs, long enough after the start for a look at the files.
        let edit = "sleep 1.2; sed 's/^6$/six/' numbers > new && mv new numbers; sed 's/^2$/mine/' other > new && mv new other";
        let mut editor = bench.command("sh").args(["-c", edit]).spawn().unwrap();
        let script = "sed -i 's/^2$/two/' numbers other; echo new > added; sleep 2.5";
        let run = bench.run(["run", "--changes", "commit", "--shell", script]);
        assert!(editor.wait().unwrap().success());
        assert_eq!(run.status.code(), Some(125), "{}: {}", bench.who(), stderr(&run));
        let merged = bench.run(["changes", "accept", "--merge"]);
        assert_eq!(merged.status.code(), Some(0), "{}: {}", bench.who(), stderr(&merged));
        let (told, said) = (stdout(&merged), stderr(&merged));
        assert!(said.contains("both versions changed the same lines, in 1 place: it waits"), "{}: {said}", bench.who());
        let wanted = OLD.replace("2\n3", "two\n3").replace('6', "six");
        assert_eq!(fs::read_to_string(bench.workspace.join("numbers")).unwrap(), wanted, "{}: {told}", bench.who());
        let line =
            told.lines().find(|line| line.starts_with("merged numbers; yours is ")).unwrap_or_else(|| panic!("{told}"));
        let names: Vec<&str> = line.trim_start_matches("merged numbers; yours is ").split(", the run's is ").collect();
        let kept = [names[0], names[1]].map(|name| fs::read_to_string(bench.workspace.join(name)).unwrap());
        assert_eq!(kept, [OLD.replace('6', "six"), OLD.replace("2\n3", "two\n3")], "{}", bench.who());
        assert_eq!(fs::read_to_string(bench.workspace.join("other")).unwrap(), OLD.replace("2\n3", "mine\n3"));
        assert!(bench.workspace.join("added").exists() && !told.contains("<<<<"), "{told}");
        // What could not be merged waits, and nothing of what was.
        assert_eq!(bench.run(["changes", "accept", "--theirs"]).status.code(), Some(0));
        assert_eq!(fs::read_to_string(bench.workspace.join("numbers")).unwrap(), wanted, "{}", bench.who());
        let empty = bench.run(["changes", "list"]);
        assert!(stdout(&empty).contains("No changes wait for a decision"), "{}", stdout(&empty));
    }
}

/// The run read the user's edit, so that its version has it too.
#[test]
fn an_edit_that_its_author_took_back_does_not_come_again() {
    for bench in benches() {
        bench.write("numbers", OLD);
        commit_all(&bench);
        let edit = "sleep 0.7; sed 's/^12$/debug/' numbers > new && mv new numbers";
        let mut editor = bench.command("sh").args(["-c", edit]).spawn().unwrap();
        let script = "sleep 1.4; sed -i 's/^2$/two/' numbers";
        let run = bench.run(["run", "--changes", "review", "--shell", script]);
        assert!(editor.wait().unwrap().success());
        assert_eq!(run.status.code(), Some(0), "{}: {}", bench.who(), stderr(&run));
        assert!(stdout(&bench.run(["changes", "diff"])).contains("two"));
        assert!(
            bench
                .command("git")
                .args(["-c", "safe.directory=*", "checkout", "-q", "numbers"])
                .status()
                .unwrap()
                .success()
        );
        let merged = bench.run(["changes", "accept", "--merge"]);
        assert!(
            stderr(&merged).contains("git did not have the file as it was"),
            "{}: {}",
            bench.who(),
            stderr(&merged)
        );
        assert_eq!(fs::read_to_string(bench.workspace.join("numbers")).unwrap(), OLD, "{}", bench.who());
    }
}

#[test]
fn without_a_known_base_both_versions_wait() {
    for bench in waiting() {
        fs::write(bench.workspace.join("numbers"), "mine\n").unwrap();
        let merged = bench.run(["changes", "accept", "--merge"]);
        assert_eq!(merged.status.code(), Some(0), "{}", stderr(&merged));
        assert!(
            stderr(&merged).contains("git did not have the file as it was when the run began"),
            "{}",
            stderr(&merged)
        );
        assert_eq!(fs::read_to_string(bench.workspace.join("numbers")).unwrap(), "mine\n");
        assert!(bench.workspace.join("sub/added").exists());
        assert!(stdout(&bench.run(["changes", "diff"])).contains("+eleven"), "the run's version waits");
    }
}

#[test]
fn a_misspelt_path_is_no_decision() {
    for bench in waiting() {
        for action in ["accept", "reject", "diff"] {
            let output = bench.run(["changes", action, "numbres"]);
            assert_eq!(output.status.code(), Some(2), "{action}: {}", stderr(&output));
            let output = bench.run(["changes", action, "/etc/passwd"]);
            assert_eq!(output.status.code(), Some(2), "{action}: {}", stderr(&output));
        }
        assert!(stdout(&bench.run(["changes", "list"])).contains("sed -i"));
    }
}

#[test]
fn a_terminal_is_asked_and_its_answer_is_done() {
    for bench in benches() {
        for (answer, committed, waits) in
            [("c", true, false), ("x", false, false), ("r", false, true), ("d\nx", false, false)]
        {
            let file = format!("made-{}", answer.trim().replace('\n', ""));
            let nexus = bench.nexus([] as [&str; 0]);
            let line = format!("{} run --shell 'echo text > {file}'", nexus.get_program().display());
            // script(1) gives the command a terminal of its own and types what it reads itself.
            let mut command = bench.command("script");
            let mut child = command
                .args(["-qec", &line, "/dev/null"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let mut shown = Vec::new();
            // What is typed before the question is drawn does not answer it.
            while !shown.ends_with(b"discard? ") {
                let mut byte = [0];
                assert_eq!(screen.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&shown));
                shown.push(byte[0]);
            }
            keys.write_all(format!("{answer}\n").as_bytes()).unwrap();
            drop(keys);
            screen.read_to_end(&mut shown).unwrap();
            child.wait().unwrap();
            let text = String::from_utf8(shown).unwrap();
            assert!(text.contains("[c]ommit, [d]iff, [r]eview later, [x] discard?"), "{text}");
            assert_eq!(text.contains("+text"), answer.starts_with('d'), "{text}");
            assert_eq!(bench.workspace.join(&file).exists(), committed, "{}: {answer}: {text}", bench.who());
            assert_eq!(!bench.leftovers().is_empty(), waits, "{answer}: {text}");
            if waits {
                assert_eq!(bench.run(["changes", "reject"]).status.code(), Some(0));
            }
        }
        let output = bench.run(["run", "--changes", "ask", "--", "true"]);
        assert_eq!(output.status.code(), Some(2), "without a terminal nobody can be asked");
    }
}

#[test]
fn a_directory_whose_own_change_still_waits_is_no_conflict_after_a_part_was_accepted() {
    use std::os::unix::fs::PermissionsExt;
    for bench in benches() {
        bench.write("sub/kept", "k\n");
        let script = "chmod 700 sub; echo x > sub/one; echo y > sub/two; rm sub/kept";
        assert_eq!(bench.run(["run", "--changes", "review", "--shell", script]).status.code(), Some(0));
        assert_eq!(bench.run(["changes", "accept", "sub/one", "sub/kept"]).status.code(), Some(0));
        let output = bench.run(["changes", "accept"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert!(bench.workspace.join("sub/two").exists() && !bench.workspace.join("sub/kept").exists());
        assert_eq!(fs::metadata(bench.workspace.join("sub")).unwrap().permissions().mode() & 0o777, 0o700);
        // A change that another process makes to the directory meanwhile is one.
        assert_eq!(
            bench.run(["run", "--changes", "review", "--shell", "chmod 755 sub; echo > sub/three"]).status.code(),
            Some(0)
        );
        assert_eq!(bench.run(["changes", "accept", "sub/three"]).status.code(), Some(0));
        fs::write(bench.workspace.join("sub/outside"), "x").unwrap();
        assert_eq!(bench.run(["changes", "accept"]).status.code(), Some(125));
    }
}
