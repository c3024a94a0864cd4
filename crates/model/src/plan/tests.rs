//! Plans that are refused, and their neighbours that are not.

use super::*;

fn cover(path: &str) -> Cover {
    Cover { path: path.into(), id: FileId { device: 1, inode: 2 } }
}

fn draft() -> PlanDraft {
    PlanDraft {
        run_id: RunId::new(),
        profile: SandboxProfile::Untrusted,
        image: None,
        workspace: WorkspaceMount {
            source: "/srv/project".into(),
            target: "/srv/project".into(),
            writes: Writes::Layer { root: "/var/lib/nexus/layers/x".into() },
        },
        hidden: vec!["secrets/.env".into()],
        binds: vec![Bind { source: "/opt/tool".into(), target: "/opt/tool".into(), access: Access::ReadOnly }],
        private: vec!["/home/a/.cargo".into()],
        covered: vec![cover("/opt/tool/run/socket")],
        second_search: None,
        argv: vec!["true".into()],
        cwd: "/srv/project/sub".into(),
        env: vec![("PATH".into(), "/usr/bin".into())],
        secrets: vec!["TOKEN".to_owned()],
        network: Network::None,
        host_ports: Vec::new(),
        limits: Limits::defaults(1 << 30),
        required: BTreeSet::new(),
        allow_ptrace: false,
        canary: "/var/lib/nexus/runs/x".into(),
    }
}

fn refusal(change: impl FnOnce(&mut PlanDraft)) -> PlanError {
    let mut bad = draft();
    change(&mut bad);
    Plan::new(bad).unwrap_err()
}

#[test]
fn the_canary_keeps_its_older_name_in_a_plan_that_is_sent() {
    let sent = serde_json::to_value(draft()).unwrap();
    assert_eq!(sent["marker"], serde_json::to_value(ByteText::from("/var/lib/nexus/runs/x")).unwrap());
    assert_eq!(sent.get("canary"), None);
}

#[test]
fn a_plan_with_a_network_cannot_require_that_there_is_none() {
    let mut with = draft();
    with.network = Network::Egress;
    assert!(Plan::new(with.clone()).is_ok());
    with.required.insert(Guarantee::NetNone);
    assert_eq!(Plan::new(with.clone()), Err(PlanError::Contradiction));
    with.network = Network::None;
    assert!(Plan::new(with).is_ok());
}

#[test]
fn secrets_have_names_of_files_and_a_directory_of_their_own() {
    for names in [&[""][..], &["."], &[".."], &["a/b"], &["a\0"], &["A", "A"], &[".hidden"]] {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        assert!(matches!(refusal(|plan| plan.secrets = names), PlanError::SecretName { .. }));
    }
    let many = (0..=MAX_SECRETS).map(|number| format!("n{number}")).collect();
    assert_eq!(refusal(|plan| plan.secrets = many), PlanError::TooManySecrets { count: MAX_SECRETS + 1 });
    for place in ["/run", "/run/secrets", "/run/secrets/TOKEN"] {
        let mut with = draft();
        with.binds.push(Bind { source: "/opt/tool".into(), target: place.into(), access: Access::ReadOnly });
        assert!(matches!(Plan::new(with.clone()), Err(PlanError::Reserved { .. })), "{place}");
        with.secrets.clear();
        assert!(Plan::new(with).is_ok(), "{place} is free in a run without secrets");
        let workspace = refusal(|plan| {
            plan.workspace.target = place.into();
            plan.cwd = place.into();
        });
        assert!(matches!(workspace, PlanError::Reserved { .. }), "{place}");
    }
}

#[test]
fn a_host_port_is_a_port_that_the_set_up_can_serve() {
    let draft = |ports: &[u16], network| PlanDraft { host_ports: ports.to_vec(), network, ..draft() };
    for ports in [&[5432][..], &[1, u16::MAX], &(2000..2016).collect::<Vec<_>>()] {
        assert!(Plan::new(draft(ports, Network::Egress)).is_ok(), "{ports:?}");
    }
    for ports in [&[0][..], &[53], &[3128], &[1080], &[15_001], &[7, 7]] {
        assert!(matches!(Plan::new(draft(ports, Network::Egress)), Err(PlanError::HostPort { .. })), "{ports:?}");
    }
    assert!(matches!(Plan::new(draft(&[7], Network::None)), Err(PlanError::HostPort { .. })));
    let many: Vec<_> = (2000..2017).collect();
    assert_eq!(Plan::new(draft(&many, Network::Egress)), Err(PlanError::TooManyHostPorts { count: 17 }));
}

#[test]
fn a_sound_draft_is_a_plan_and_survives_the_wire() {
    let plan = Plan::new(draft()).unwrap();
    let bytes = postcard::to_stdvec(&plan).unwrap();
    assert_eq!(postcard::from_bytes::<Plan>(&bytes).unwrap(), plan);
}

#[test]
fn an_unsound_draft_is_refused_on_the_wire_too() {
    let mut bad = draft();
    bad.cwd = "/".into();
    let bytes = postcard::to_stdvec(&bad).unwrap();
    assert!(postcard::from_bytes::<Plan>(&bytes).is_err());
}

#[test]
fn a_plan_needs_a_command_without_nul_bytes_and_of_a_size_that_linux_takes() {
    assert_eq!(refusal(|d| d.argv.clear()), PlanError::NoCommand);
    assert_eq!(refusal(|d| d.argv[0] = "".into()), PlanError::NoCommand);
    assert!(matches!(refusal(|d| d.argv.push(ByteText(vec![b'a', 0]))), PlanError::Nul { .. }));
    let long = ByteText(vec![b'a'; MAX_ARG_BYTES]);
    assert!(matches!(refusal(|d| d.argv.push(long)), PlanError::ArgumentTooLong { index: 1, .. }));
    let mut fits = draft();
    fits.argv.push(ByteText(vec![b'a'; MAX_ARG_BYTES - 1]));
    assert!(Plan::new(fits).is_ok());
}

#[test]
fn paths_have_one_spelling() {
    for bad in ["", "relative", "/srv/../etc", "/srv/./x", "/srv//x", "/srv/x/"] {
        let refused = refusal(|d| d.binds[0].target = bad.into());
        assert!(matches!(refused, PlanError::NotNormal { .. }), "{bad}: {refused}");
    }
}

#[test]
fn hidden_and_protected_names_stay_below_the_workspace() {
    for bad in ["", "/etc/passwd", "../x", "a/../../b"] {
        assert!(matches!(refusal(|d| d.hidden = vec![bad.into()]), PlanError::NotNormal { .. }), "{bad}");
        let writes = Writes::Direct { protected: vec![bad.into()] };
        assert!(matches!(refusal(|d| d.workspace.writes = writes), PlanError::NotNormal { .. }), "{bad}");
    }
}

#[test]
fn a_private_directory_lies_in_nothing_of_the_host() {
    for bad in ["/usr/local/cargo", "/etc/cargo", "/dev/x", "/proc/x/y", "/cargo", "/home"] {
        let refused = refusal(|d| d.private = vec![bad.into()]);
        assert!(matches!(refused, PlanError::Reserved { .. }), "{bad}: {refused}");
    }
    for bad in ["/srv/project", "/srv/project/.cargo"] {
        let refused = refusal(|d| d.private = vec![bad.into()]);
        assert!(matches!(refused, PlanError::CoversWorkspace { .. }), "{bad}: {refused}");
    }
    for bad in ["/opt/tool", "/opt/tool/home"] {
        let refused = refusal(|d| d.private = vec![bad.into()]);
        assert!(matches!(refused, PlanError::Overlap { .. }), "{bad}: {refused}");
    }
    assert!(matches!(refusal(|d| d.private = vec!["/home/a/../b".into()]), PlanError::NotNormal { .. }));
    let mut around = draft();
    around.private = vec!["/opt/own".into(), "/home/nexus/x".into()];
    around.binds[0].target = "/opt/own/tool".into();
    around.covered.clear();
    assert!(Plan::new(around).is_ok(), "a bind in a private directory");
}

#[test]
fn nothing_covers_the_system_the_workspace_or_another_bind() {
    for bad in ["/", "/usr", "/proc/self", "/dev", "/dev/shm/x", "/etc", "/usr/bin/tool", "/lib64"] {
        let refused = refusal(|d| d.binds[0].target = bad.into());
        assert!(matches!(refused, PlanError::Reserved { .. }), "{bad}: {refused}");
    }
    for system in
        ["/usr/sbin", "/usr/share", "/usr/libexec/x", "/usr/local", "/etc/ssl", "/etc/ssl/certs", "/etc/passwd"]
    {
        let refused = refusal(|d| d.binds[0].target = system.into());
        assert!(matches!(refused, PlanError::Reserved { .. }), "{system}: {refused}");
    }
    for fine in ["/usr/local/tool", "/etc/tool.conf", "/etc/apt"] {
        let mut other = draft();
        other.covered.clear();
        other.binds[0].target = fine.into();
        assert!(Plan::new(other).is_ok(), "{fine}");
    }
    let mut own = draft();
    own.covered.clear();
    own.binds[0] = Bind { source: "/usr/share/x".into(), target: "/usr/share/x".into(), access: Access::ReadOnly };
    assert!(Plan::new(own).is_ok(), "what is there anyway");
    for bad in ["/srv", "/srv/project"] {
        let refused = refusal(|d| d.binds[0].target = bad.into());
        assert!(matches!(refused, PlanError::CoversWorkspace { .. }), "{bad}: {refused}");
    }
    let twice = refusal(|d| d.binds.push(d.binds[0].clone()));
    assert!(matches!(twice, PlanError::Overlap { .. }));
    let mut nested = draft();
    nested.binds[0].target = "/srv/project/vendor".into();
    nested.covered.clear();
    assert!(Plan::new(nested).is_ok());
}

#[test]
fn a_device_stays_at_its_own_place() {
    let with = |source: &str, target: &str, access| {
        let mut draft = draft();
        draft.binds = vec![Bind { source: source.into(), target: target.into(), access }];
        draft.covered.clear();
        Plan::new(draft).is_ok()
    };
    let tun = Access::Device { major: 10, minor: 200 };
    assert!(with("/dev/net/tun", "/dev/net/tun", tun));
    assert!(with("/dev/dri/renderD128", "/dev/dri/renderD128", Access::Device { major: 226, minor: 128 }));
    for (source, target) in [
        ("/dev/net/tun", "/dev/tun"),
        ("/srv/tun", "/srv/tun"),
        ("/dev", "/dev"),
        ("/dev/null", "/dev/null"),
        ("/dev/pts/1", "/dev/pts/1"),
        ("/dev/shm/x", "/dev/shm/x"),
    ] {
        assert!(!with(source, target, tun), "{source} {target}");
    }
    for access in [Access::ReadOnly, Access::ReadWrite] {
        assert!(!with("/dev/net/tun", "/dev/net/tun", access), "{access:?}");
    }
}

#[test]
fn only_what_a_bind_shows_is_covered() {
    for bad in ["/opt/tool", "/usr/bin/x", "/srv/project/x"] {
        let refused = refusal(|d| d.covered = vec![cover(bad)]);
        assert!(matches!(refused, PlanError::CoveredOutside { .. }), "{bad}: {refused}");
    }
    assert!(matches!(refusal(|d| d.covered = vec![cover("/opt/tool/../x")]), PlanError::NotNormal { .. }));
}

#[test]
fn only_a_bind_is_searched_again() {
    let search = |bind: &str| {
        let binds = vec![bind.into()];
        SecondSearch {
            binds,
            allowed: Vec::new(),
            entered: Vec::new(),
            below_entered: Vec::new(),
            vanished: Vec::new(),
            since: (0, 0),
        }
    };
    let mut with = draft();
    with.second_search = Some(search("/opt/tool"));
    assert!(Plan::new(with).is_ok());
    for bad in ["/opt", "/opt/tool/run", "/srv/project"] {
        let refused = refusal(|d| d.second_search = Some(search(bad)));
        assert!(matches!(refused, PlanError::CoveredOutside { .. }), "{bad}: {refused}");
    }
}

#[test]
fn the_working_directory_never_leaves_the_workspace() {
    for bad in ["/srv", "/srv/project2", "/"] {
        let refused = refusal(|d| d.cwd = bad.into());
        assert!(matches!(refused, PlanError::CwdOutside { .. }), "{bad}: {refused}");
    }
}

#[test]
fn a_limit_of_zero_is_refused() {
    assert!(matches!(refusal(|d| d.limits.pids = 0), PlanError::ZeroLimit { .. }));
    assert!(matches!(refusal(|d| d.limits.memory_bytes = Some(0)), PlanError::ZeroLimit { .. }));
}
