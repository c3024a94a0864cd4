//! `nexus image` and `nexus run --image`: an image in place of the host's system.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::{Bench, on_each_bench, report, stderr, stdout, wait_until};

/// Programs of this machine that the image has, with their libraries.
const PROGRAMS: &[&str] = &["sh", "cat", "ls", "sleep"];

fn output(command: &mut Command) -> String {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", stderr(&done));
    stdout(&done)
}

/// Makes a root with a few programs in `usr/bin`; `bin` and the directories of libraries are links, as in a distribution.
fn make_root(root: &Path) {
    let mut files = BTreeSet::new();
    for program in PROGRAMS {
        let path = output(Command::new("sh").args(["-c", &format!("command -v {program}")]));
        let path = PathBuf::from(path.trim());
        let listed = output(Command::new("ldd").arg(&path));
        files.extend(listed.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from));
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        fs::copy(&path, root.join("usr/bin").join(program)).unwrap();
    }
    for file in files {
        let below = file.strip_prefix("/").unwrap();
        let below = below.strip_prefix("usr").unwrap_or(below);
        let place = root.join("usr").join(below);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(&file, place).unwrap();
    }
    for name in ["bin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), root.join(name)).unwrap();
    }
    for dir in ["etc/settings.d", "var/lib/tool", "home/other", "opt", "proc", "sys", "dev", "tmp", "srv"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::write(root.join("etc/marker"), "of the image\n").unwrap();
    fs::write(root.join("etc/passwd"), "evil:x:0:0::/:/bin/sh\n").unwrap();
    fs::write(root.join("var/lib/tool/data"), "data\n").unwrap();
}

fn tar(dir: &Path, to: &Path) {
    output(Command::new("tar").args(["--owner=0", "--group=0", "-C"]).arg(dir).arg("-cf").arg(to).arg("."));
}

/// Writes an archive that has entries for files and links alone: directories are made on the way to them.
fn tar_of_files(dir: &Path, to: &Path) {
    let list = output(Command::new("find").current_dir(dir).args([".", "-not", "-type", "d", "-o", "-empty"]));
    let mut words: Vec<&str> = list.lines().collect();
    words.sort_unstable();
    output(Command::new("tar").args(["--no-recursion", "-C"]).arg(dir).arg("-cf").arg(to).args(words));
}

/// Writes an archive as docker save does, of one layer.
fn docker_archive(bench: &Bench, root: &Path, config: &Value) -> PathBuf {
    let dir = bench.base.path().join("saved");
    fs::create_dir_all(&dir).unwrap();
    tar_of_files(root, &dir.join("layer.tar"));
    let sum = output(Command::new("sha256sum").arg(dir.join("layer.tar")));
    let diff_id = format!("sha256:{}", sum.split(' ').next().unwrap());
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let document = json!({
        "architecture": architecture, "os": "linux", "config": config,
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
    });
    fs::write(dir.join("config.json"), document.to_string()).unwrap();
    let manifest = json!([{"Config": "config.json", "RepoTags": ["tiny:1"], "Layers": ["layer.tar"]}]);
    fs::write(dir.join("manifest.json"), manifest.to_string()).unwrap();
    let archive = bench.base.path().join("saved.tar");
    tar(&dir, &archive);
    bench.give(&archive);
    archive
}

fn imported(bench: &Bench, config: &Value, change: impl FnOnce(&Path)) -> Value {
    let root = bench.base.path().join("root");
    make_root(&root);
    change(&root);
    let archive = docker_archive(bench, &root, config);
    // The mask of the caller says nothing about the directories of an image.
    let mut import = bench.command("sh");
    import.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(bench.program());
    let done = import.args(["image", "import", "--json"]).arg(&archive).output().unwrap();
    assert!(done.status.success(), "{}", stderr(&done));
    report(&done)
}

/// Every path of the store with its type.
fn listing(dir: &Path) -> Vec<String> {
    let mut lines: Vec<String> =
        output(Command::new("find").arg(dir).args(["-printf", "%P %y %s %m\n"])).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn an_image_is_the_system_of_a_run_and_everything_else_stays_as_it_is() {
    on_each_bench(|bench| {
        let who = bench.who();
        let config = json!({
            "Env": ["FROM_IMAGE=yes", "HOME=/root", "PATH=/usr/bin"], "Cmd": ["cat", "/etc/marker"],
            "WorkingDir": "/srv", "User": "root",
        });
        let none = bench.run(["explain", "--image", "tiny:1", "--", "x"]);
        assert!(stderr(&none).contains("there is no image"), "{who}: {}", stderr(&none));
        assert!(!bench.state.join("images").exists(), "{who}: nothing is made by looking");
        let image = imported(&bench, &config, |_| ());
        let digest = image["digest"].as_str().unwrap();
        let tree = bench.state.join("images/roots").join(&image["root"].as_str().unwrap()[7..]).join("tree");
        let before = listing(&tree);

        let script = "cat /etc/marker /var/lib/tool/data; echo $FROM_IMAGE $HOME $PATH; echo new > made; cat /etc/passwd; \
                      for f in /usr/x /etc/x /opt/x /x /srv/x; do (echo > $f) 2>/dev/null && echo wrote $f; done; \
                      ls /home /; ls /usr/bin; echo > /tmp/x && echo > ~/x && echo scratch";
        let done = bench.run(["run", "--json", "--image", "tiny:1", "--", "sh", "-c", script]);
        let document = report(&done);
        let text = document["output"]["stdout"]["text"].as_str().unwrap_or_else(|| panic!("{who}: {document:#}"));
        assert!(text.starts_with("of the image\ndata\nyes /home/nexus /usr/bin\n"), "{who}: {text}");
        assert!(text.contains("nexus:x:1000") && !text.contains("evil"), "{who}: {text}");
        assert!(!text.contains("wrote") && text.ends_with("cat\nls\nsh\nsleep\nscratch\n"), "{who}: {text}");
        assert_eq!(document["exit_code"], 0, "{who}");
        assert_eq!(document["sandbox"]["image"], json!({"digest": digest, "reference": "tiny:1"}), "{who}");
        let proof = document["sandbox"]["proof"].as_array().unwrap();
        assert!(proof.iter().any(|one| one["check"] == "write_system" || one.to_string().contains("write_system")));
        assert_eq!(fs::read_to_string(bench.workspace.join("made")).unwrap(), "new\n", "{who}");
        assert_eq!(listing(&tree), before, "{who}: nothing is made in the store");

        // Landlock refuses the writes too; the mounts do it alone.
        let mounts = stdout(&bench.run(["run", "--image", "tiny:1", "--", "cat", "/proc/self/mountinfo"]));
        for place in ["/usr", "/etc/marker", "/opt", "/var/lib", "/dev/pts"] {
            let mut here =
                mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).filter(|line| line[4] == place);
            let first = here.next().unwrap_or_else(|| panic!("{who}: {place} in {mounts}"));
            assert!(first[5].starts_with("ro,nosuid,nodev"), "{who}: {place}: {}", first[5]);
        }

        // The same without the image has the host's system, and the rest of the world is the same.
        let host = bench.run(["run", "--", "cat", "/etc/marker"]);
        assert_ne!(host.status.code(), Some(0), "{who}");
        // What the image does not have is not there.
        let missing = bench.run(["run", "--image", "tiny", "--", "env"]);
        assert_eq!((stderr(&missing).contains("image_unknown"), missing.status.code()), (false, Some(125)), "{who}");
        let missing = bench.run(["run", "--image", "tiny:1", "--", "env"]);
        assert_eq!(missing.status.code(), Some(127), "{who}: {}", stderr(&missing));

        // Its own command, and by its digest.
        let own = bench.run(["run", "--image", digest]);
        assert_eq!(stdout(&own), "of the image\n", "{who}: {}", stderr(&own));
        let receipt = bench.run(["receipt", "show", document["run_id"].as_str().unwrap()]);
        assert!(stdout(&receipt).contains(digest), "{who}: {}", stdout(&receipt));
        let explained = stdout(&bench.run(["explain", "--image", "tiny:1", "--", "x"]));
        assert!(explained.contains(&format!("read  / of the image {digest}")), "{who}: {explained}");
        assert!(explained.contains("the user of the image, root, is ignored"), "{who}: {explained}");
        assert!(explained.contains("the working directory of the image, /srv, is ignored"), "{who}: {explained}");
        assert!(explained.contains("off  ← --image tiny:1"), "{who}: {explained}");
        assert_eq!(bench.leftovers(), Vec::<PathBuf>::new(), "{who}");
    });
}

#[test]
fn links_of_an_image_do_not_move_what_the_sandbox_has() {
    on_each_bench(|mut bench| {
        // Facilities lie beside the state directory.
        bench.state = bench.state.join("own");
        fs::create_dir(&bench.state).unwrap();
        bench.give(&bench.state);
        let who = bench.who();
        let hostile = |root: &Path| {
            for (name, target) in [("etc", "/tmp"), ("home", "/tmp"), ("workspace", "usr"), ("var", "/workspace")] {
                let place = root.join(name);
                if place.exists() {
                    fs::remove_dir_all(&place).unwrap();
                }
                symlink(target, place).unwrap();
            }
            for (name, target) in [("proc", "/tmp"), ("dev", "/tmp"), ("tmp", "/usr")] {
                fs::remove_dir(root.join(name)).unwrap();
                symlink(target, root.join(name)).unwrap();
            }
        };
        imported(&bench, &json!({}), hostile);
        let script = "cat /etc/passwd; ls -d /etc /home/nexus /var/tmp /proc/self /dev/null; echo new > /workspace/made; ls /tmp";
        let done = bench.run(["run", "--facility", "one", "--image", "tiny:1", "--shell", script]);
        assert_eq!(done.status.code(), Some(0), "{who}: {}", stderr(&done));
        let text = stdout(&done);
        assert!(text.contains("nexus:x:1000") && text.contains("/proc/self"), "{who}: {text}");
        let again = bench.run(["run", "--facility", "one", "--image", "tiny:1", "--", "cat", "/workspace/made"]);
        assert_eq!(stdout(&again), "new\n", "{who}: {}", stderr(&again));
        // A system directory that is a link is none: the proof that nothing is written there needs a directory.
        let no_usr = |root: &Path| {
            fs::rename(root.join("usr"), root.join("system")).unwrap();
            symlink("/tmp", root.join("usr")).unwrap();
            for name in ["bin", "lib", "lib64"] {
                fs::remove_file(root.join(name)).unwrap();
                symlink(format!("system/{name}"), root.join(name)).unwrap();
            }
        };
        fs::remove_dir_all(bench.base.path().join("root")).unwrap();
        imported(&bench, &json!({"Env": ["PATH=/bin"]}), no_usr);
        let done = bench.run(["run", "--image", "tiny:1", "--", "ls", "/usr"]);
        assert_eq!((done.status.code(), stdout(&done).as_str()), (Some(0), ""), "{who}: {}", stderr(&done));
    });
}

#[test]
fn an_approval_is_for_one_image_and_names_it() {
    on_each_bench(|bench| {
        let who = bench.who();
        let image = imported(&bench, &json!({}), |_| ());
        let text = "policy: nexus.policy/1\nid: asks\nlevel: user\napproval: {exec: needs_approval}\n";
        bench.at_home(".config/nexus/policy/asks.yaml", text);
        let asked = |arguments: &[&str]| {
            let refused = bench.run([&["run"], arguments, &["--", "cat", "/etc/marker"]].concat());
            assert_eq!(refused.status.code(), Some(125), "{who}: {}", stderr(&refused));
            let text = stderr(&refused);
            text.split(" waits for one").next().unwrap().rsplit(' ').next().unwrap().to_owned()
        };
        let (with, without) = (asked(&["--image", "tiny:1"]), asked(&[]));
        assert_ne!(with, without, "{who}");
        assert_eq!(asked(&["--image", "tiny:1"]), with, "{who}: the same request is one request");
        let shown = |id: &str| stdout(&bench.run(["approvals", "show", id]));
        let digest = image["digest"].as_str().unwrap();
        assert!(shown(&with).contains(digest), "{who}: {}", shown(&with));
        assert!(!shown(&without).contains("image"), "{who}: {}", shown(&without));
    });
}

#[test]
fn the_root_of_an_image_stays_while_a_run_uses_it() {
    on_each_bench(|bench| {
        let who = bench.who();
        let image = imported(&bench, &json!({}), |_| ());
        let id = bench.detach(&["--image", "tiny:1", "--", "sh", "-c", "echo > /tmp/up; sleep 1000"]);
        bench.wait_for_state(&id, "running");
        let gone = report(&bench.run(["image", "rm", "tiny:1", "--json"]));
        assert_eq!(gone, json!({"schema": "nexus.image/1", "digest": image["digest"], "removed": true}), "{who}");
        let kept = report(&bench.run(["image", "gc", "--json"]));
        assert_eq!((&kept["roots"], &kept["roots_in_use"]), (&json!(0), &json!(1)), "{who}");
        assert_eq!(stdout(&bench.exec(&id, "cat /etc/marker")), "of the image\n", "{who}");
        assert!(bench.run(["stop", &id]).status.success(), "{who}");
        wait_until("the root is free", Duration::from_secs(30), || {
            report(&bench.run(["image", "gc", "--json"]))["roots"] == json!(1)
        });
        let none = report(&bench.run(["image", "ls", "--json"]));
        assert_eq!(none, json!({"schema": "nexus.image/1", "images": []}), "{who}");
        let refused = bench.run(["run", "--image", "tiny:1", "--", "ls"]);
        assert_eq!(refused.status.code(), Some(125), "{who}");
        assert!(stderr(&refused).contains("there is no image"), "{who}: {}", stderr(&refused));
    });
}
