use super::*;
use nexus_model::plan::{Access, Bind, PlanDraft, WorkspaceMount};
use nexus_model::spec::SandboxProfile;
use nexus_model::{Limits, RunId};

fn plan(workspace: &Path, protected: &[&str], hidden: &[&str], binds: &[(&Path, &Path)], direct: bool) -> Plan {
    let names = |all: &[&str]| all.iter().map(|name| (*name).into()).collect::<Vec<_>>();
    let writes = if direct {
        Writes::Direct { protected: names(protected) }
    } else {
        Writes::Layer { root: Path::new("/layers/x").into() }
    };
    Plan::new(PlanDraft {
        run_id: RunId::new(),
        profile: SandboxProfile::Untrusted,
        image: None,
        hidden: names(hidden),
        private: Vec::new(),
        covered: Vec::new(),
        second_search: None,
        allow_ptrace: false,
        binds: binds
            .iter()
            .map(|(source, target)| Bind {
                source: (*source).into(),
                target: (*target).into(),
                access: Access::ReadOnly,
            })
            .collect(),
        workspace: WorkspaceMount { source: workspace.into(), target: workspace.into(), writes },
        argv: vec!["true".into()],
        cwd: workspace.into(),
        env: Vec::new(),
        secrets: Vec::new(),
        network: nexus_model::network::Network::None,
        host_ports: Vec::new(),
        limits: Limits::defaults(1 << 20),
        required: std::collections::BTreeSet::new(),
        canary: Path::new("/state/x").into(),
    })
    .unwrap()
}

fn workspace() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let at = std::fs::canonicalize(directory.path()).unwrap();
    for path in ["conf/.env", "CLAUDE.md", ".vscode/tasks.json", "plain"] {
        std::fs::create_dir_all(at.join(path).parent().unwrap()).unwrap();
        std::fs::write(at.join(path), "old").unwrap();
    }
    (directory, at)
}

#[test]
fn names_of_the_host_that_carry_covers_are_known() {
    let top = Path::new("/w");
    let found = |plan: &Plan| covered(plan).0.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    let direct = plan(top, &["a/b/.x"], &["c/.env"], &[(Path::new("/e"), Path::new("/w/d/keep"))], true);
    assert_eq!(found(&direct), ["/w/a", "/w/a/b", "/w/a/b/.x", "/w/c", "/w/c/.env", "/w/d", "/w/d/keep"]);
    let binds = [(Path::new("/host/d"), Path::new("/d")), (Path::new("/e"), Path::new("/d/in/keep"))];
    assert_eq!(found(&plan(top, &[], &[], &binds, true)), ["/host/d/in", "/host/d/in/keep"]);
    // The overlay's own names.
    let layered = plan(top, &[], &["c/.env"], &[(Path::new("/e"), Path::new("/w/d"))], false);
    assert_eq!(found(&layered), [""; 0]);
    assert!(Covers::watch(&layered).unwrap().is_none());
}

/// A way to take a cover away, and what it is called.
type Way = (&'static str, fn(&Path));

#[test]
fn every_way_to_replace_a_covered_path_is_noticed() {
    for told in [true, false] {
        let ways: [Way; 8] = [
            ("a rename over it", |at| {
                std::fs::write(at.join("tmp"), "new").unwrap();
                std::fs::rename(at.join("tmp"), at.join("CLAUDE.md")).unwrap();
            }),
            ("its removal", |at| std::fs::remove_file(at.join("conf/.env")).unwrap()),
            ("its rename", |at| std::fs::rename(at.join("CLAUDE.md"), at.join("other")).unwrap()),
            ("another file of its name", |at| {
                std::fs::remove_file(at.join("CLAUDE.md")).unwrap();
                std::fs::write(at.join("CLAUDE.md"), "new").unwrap();
            }),
            ("a directory moved away", |at| std::fs::rename(at.join(".vscode"), at.join("v")).unwrap()),
            ("a directory above moved away", |at| std::fs::rename(at.join("conf"), at.join("c")).unwrap()),
            ("an exchange", |at| {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, at.join("plain"), CWD, at.join("CLAUDE.md"), flags).unwrap();
            }),
            ("a link in its place", |at| {
                std::fs::remove_file(at.join("CLAUDE.md")).unwrap();
                std::os::unix::fs::symlink("plain", at.join("CLAUDE.md")).unwrap();
            }),
        ];
        for (way, act) in ways {
            let (_directory, at) = workspace();
            let plan = plan(&at, &["CLAUDE.md", ".vscode"], &["conf/.env"], &[], true);
            let instance = || inotify::init(CreateFlags::NONBLOCK).ok().filter(|_| told);
            let mut covers = Covers::watch_with(&plan, instance).unwrap().unwrap();
            assert_eq!((covers.fd().is_some(), covers.next_look().is_none()), (told, told));
            // Neighbours, and edits in place, take no cover away.
            std::fs::write(at.join("plain"), "new").unwrap();
            std::fs::write(at.join("fresh"), "new").unwrap();
            std::fs::write(at.join(".vscode/tasks.json"), "new").unwrap();
            std::fs::remove_file(at.join("fresh")).unwrap();
            std::fs::set_permissions(at.join("conf"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
            assert_eq!(covers.lost(), None, "{way}");
            act(&at);
            assert!(covers.lost().is_some(), "{way}, told {told}");
        }
    }
}

#[test]
fn a_covered_name_that_comes_back_was_lost_all_the_same() {
    let (_directory, at) = workspace();
    let mut covers = Covers::watch(&plan(&at, &["CLAUDE.md"], &[], &[], true)).unwrap().unwrap();
    // The same inode under the same name: only the kernel's word tells.
    std::fs::hard_link(at.join("CLAUDE.md"), at.join("tmp")).unwrap();
    std::fs::remove_file(at.join("CLAUDE.md")).unwrap();
    std::fs::hard_link(at.join("tmp"), at.join("CLAUDE.md")).unwrap();
    assert_eq!(covers.lost(), Some(at.join("CLAUDE.md")));
}

#[test]
fn more_events_than_the_kernel_keeps_lose_no_replacement() {
    let (_directory, at) = workspace();
    let mut covers = Covers::watch(&plan(&at, &["CLAUDE.md"], &[], &[], true)).unwrap().unwrap();
    for number in 0..20_000 {
        let name = at.join(if number % 2 == 0 { "a" } else { "b" });
        std::fs::write(&name, "x").unwrap();
        std::fs::remove_file(&name).unwrap();
    }
    std::fs::write(at.join("tmp"), "new").unwrap();
    std::fs::rename(at.join("tmp"), at.join("CLAUDE.md")).unwrap();
    let found = (0..100).find_map(|_| covers.lost());
    assert_eq!(found, Some(at.join("CLAUDE.md")));
}

#[test]
fn protected_files_that_changed_in_place_are_known() {
    let (_directory, at) = workspace();
    let covers = Covers::watch(&plan(&at, &["CLAUDE.md", ".vscode"], &["conf/.env"], &[], true)).unwrap().unwrap();
    assert_eq!(covers.altered(), [""; 0].map(PathBuf::from));
    // A clock of the file system may stand still for some milliseconds.
    let deadline = Instant::now() + Duration::from_secs(10);
    while covers.altered().is_empty() && Instant::now() < deadline {
        std::fs::write(at.join("CLAUDE.md"), "new").unwrap();
    }
    std::fs::write(at.join("conf/.env"), "new").unwrap();
    assert_eq!(covers.altered(), [at.join("CLAUDE.md")]);
}
