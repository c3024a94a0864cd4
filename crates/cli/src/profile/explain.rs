//! `nexus explain`: what a command line of `nexus run` would allow, and which file or flag said so. It decides with the
//! code that a run decides with, and starts and writes nothing.

use super::resolution::{FileState, Resolution};
use crate::args::RunArgs;
use crate::failure::{Failure, one_line};
use crate::failures;
use crate::image::ImageOfRun;
use crate::net::host_port::refuse_loopback_rules;
use crate::net::network;
use crate::request;
use crate::run::facility;
use crate::terminal::out;
use nexus_image::Settings;
use nexus_layer::entries::protected::{DEFAULT_PROTECTED, DEFAULT_PROTECTED_OF_REPOSITORIES};
use nexus_model::plan::{Access, SECRETS};
use nexus_policy::profile::{ChangesMode, Grants, format_limit};
use nexus_profiles::FoundBind;
use nexus_profiles::FoundSource as Source;
use nexus_runner::plan::binds::{self, Place};
use nexus_runner::plan::environment::{self, Variable};
use nexus_runner::plan::hide::Top;
use nexus_runner::plan::homes::Homes;
use nexus_runner::plan::resolve;
use nexus_runner::plan::shown::Shown;
use nexus_runner::request::ChangeMode;
use nexus_runner::secrets::Request;
use nexus_runner::state::project_cache;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Prints it and returns the exit code.
pub fn command(args: &RunArgs) -> u8 {
    let written = explained(args).and_then(|text| {
        out::write_unless_closed(&mut std::io::stdout(), text.as_bytes())
            .map_err(|error| failures::not_written("the answer", &error))
    });
    match written {
        Ok(()) => 0,
        Err(failure) => failures::print_failure(&failure, false),
    }
}

struct Explained {
    workspace: PathBuf,
    resolution: Resolution,
    binds: Vec<Shown>,
    variables: Vec<Variable>,
    secrets: Vec<Request>,
    changes: &'static str,
    /// Places of the caches of the workspace.
    caches: Vec<PathBuf>,
}

fn explained(args: &RunArgs) -> Result<String, Failure> {
    crate::run::parsed_run::refuse_what_is_not_here(args)?;
    let places = crate::host::state_dir()?;
    let workspace = crate::host::workspace(args.workspace.as_deref(), &places)?;
    let resolution = Resolution::of(args, &workspace, &places)?;
    let inside = if args.facility.is_some() { Path::new(facility::MOUNT) } else { &workspace };
    resolve::check_patterns(&resolution.grants, Top { workspace: &workspace, inside })?;
    refuse_loopback_rules(&resolution.grants.net)?;
    let request = request::of(args, &resolution)?;
    let host = crate::host::here();
    let (shows, grants, tools) = (&request.shows, &request.grants, &request.tools);
    let guarded = resolve::guarded(shows, grants, tools, &host);
    let place = Place { host: &host, workspace: &workspace, state: &places.state, guarded: &guarded };
    let binds = binds::read(shows, grants, tools, &place)?;
    let env = environment::build(&request, &host)?;
    crate::environment::warn(&env.notices);
    let has_network = request.network.is_some();
    let shown: Vec<_> = binds.iter().map(|shown| shown.bind.target.as_path()).collect();
    let homes = Homes::of(&request, inside, &shown);
    let caches =
        if resolve::has_cache(&request) { project_cache::targets(has_network, &homes).collect() } else { Vec::new() };
    let variables = env.variables.into_iter().filter(|variable| !homes.lost(&variable.name, &variable.value)).collect();
    let secrets = request.secrets;
    let all = Explained {
        binds,
        variables,
        secrets,
        changes: changes(&resolution.grants, args),
        caches,
        workspace,
        resolution,
    };
    Ok(if args.json { format!("{:#}\n", all.json()) } else { all.text() })
}

fn changes(grants: &Grants, args: &RunArgs) -> &'static str {
    if args.live {
        return "written straight into the workspace, whose state is kept before";
    }
    if args.direct {
        return "written straight into the workspace";
    }
    match request::changes(grants, args) {
        ChangeMode::Commit => ChangesMode::Commit.word(),
        ChangeMode::Discard => ChangesMode::Discard.word(),
        ChangeMode::Review => ChangesMode::Review.word(),
        ChangeMode::Ask => ChangesMode::Ask.word(),
    }
}

/// Returns whether the toolchains that PATH leads to are shown, and what says so.
fn auto(grants: &Grants) -> (&'static str, String) {
    let from = grants.auto.as_ref().map(|auto| auto.from.to_string()).unwrap_or_default();
    (if grants.shows_auto() { "on" } else { "off" }, from)
}

fn access(access: Access) -> &'static str {
    match access {
        Access::ReadOnly => "read",
        Access::ReadWrite => "write",
        Access::Device { .. } => "device",
    }
}

impl Explained {
    fn file(&self) -> &'static str {
        match self.resolution.file {
            FileState::Absent => "absent",
            FileState::Narrows => "narrows",
            FileState::Trusted => "trusted",
        }
    }

    fn text(&self) -> String {
        let mut out = Lines::default();
        let grants = &self.resolution.grants;
        let profiles: Vec<_> = grants.profiles.iter().map(|profile| profile.name.as_str()).collect();
        out.head("profiles", &profiles.join(", "));
        out.head("nexus.yaml", self.file());
        let (state, from) = auto(grants);
        out.head("auto", &if from.is_empty() { state.to_owned() } else { format!("{state}  ← {from}") });
        out.title("paths");
        out.row(&format!("write {}", self.workspace.display()), "the workspace; changes are kept apart");
        match &self.resolution.image {
            None => out.row("read  /usr and the system's tables in /etc", "always"),
            Some(image) => {
                let root = &image.run.root;
                out.row(&format!("read  / of the image {}", root.digest), &format!("--image {}", image.run.reference));
            }
        }
        for shown in &self.binds {
            let target = shown.bind.target.as_path().display();
            let made = if shown.made.is_some() { "made by Nexus".to_owned() } else { String::new() };
            let source = shown.bind.source.as_path();
            let from = if source == shown.bind.target.as_path() { made } else { format!("from {}", source.display()) };
            let why =
                [shown.why.unwrap_or_default(), &from].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
            let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join(", ")) };
            out.row(&format!("{:5} {target}{why}", access(shown.bind.access)), &shown.from.to_string());
        }
        for cache in &self.caches {
            let from = grants.cache.as_ref().map(|cache| cache.from.to_string()).unwrap_or_default();
            out.row(&format!("write {} (caches of this workspace)", cache.display()), &from);
        }
        for secret in &self.secrets {
            out.row(
                &format!("read  {SECRETS}/{} (a secret from {})", secret.name, secret.reference.provider()),
                "--secret",
            );
        }
        for pattern in &grants.hide {
            out.row(&format!("hide  {}", pattern.value), &pattern.from.to_string());
        }
        out.title("environment");
        for variable in &self.variables {
            let name = variable.name.as_path().display();
            let value = variable.value.as_path().display();
            let shown = if variable.passed { format!("{name} (yours)") } else { format!("{name}={value}") };
            out.row(&shown, &variable.from.to_string());
        }
        out.text.push_str(&calls(grants));
        out.text.push_str(&network(grants));
        if let Some(network) = &self.resolution.network {
            for (what, from) in network::describe(network, &self.resolution.settings.egress) {
                out.row(&what, &from);
            }
        }
        out.text.push_str(&limits(grants));
        let from = grants.changes.as_ref().map_or("always".to_owned(), |changes| changes.from.to_string());
        out.title("changes");
        out.row(self.changes, &from);
        let always = DEFAULT_PROTECTED.len() + DEFAULT_PROTECTED_OF_REPOSITORIES.len();
        out.row(&format!("git's hooks and settings and {always} protected names wait for an accept"), "always");
        for name in &grants.protect {
            out.row(&format!("protect {}", name.value), &name.from.to_string());
        }
        let policies = &self.resolution.settings.egress.policies;
        if !policies.is_empty() {
            out.title("policies");
            for (what, from) in policies.rows() {
                out.row(&what, &from.to_string());
            }
        }
        let notes = self.notes();
        if !notes.is_empty() {
            out.title("notes");
            for note in &notes {
                out.row(note, "");
            }
        }
        out.text
    }

    /// Returns what was noted about toolchains, and what `auto` found and the run does not show.
    fn notes(&self) -> Vec<String> {
        let is_shown = |target: &Path| {
            self.binds.iter().any(|shown| target.starts_with(shown.bind.target.as_path()))
                || target.starts_with(&self.workspace)
        };
        let of_image = self.resolution.image.iter().flat_map(|image| {
            let Settings { user, working_dir, .. } = &image.settings;
            let ignored = [("user", user), ("working directory", working_dir)].into_iter();
            ignored
                .filter(|(_, value)| !value.is_empty())
                .map(|(what, value)| format!("the {what} of the image, {}, is ignored", one_line(value)))
        });
        let is_auto = |bind: &&FoundBind| bind.from.auto_reason().is_some() && matches!(bind.source, Source::Path(_));
        let left_out = self.resolution.found.binds.iter().filter(is_auto);
        let left_out = left_out.filter(|bind| !is_shown(&bind.target)).map(|bind| {
            format!(
                "{} ({}) is not shown: it holds or meets what a run may not show or shows already",
                bind.target.display(),
                bind.why
            )
        });
        self.resolution.found.notes.iter().cloned().chain(left_out).chain(of_image).collect()
    }

    fn json(&self) -> Value {
        let grants = &self.resolution.grants;
        let paths: Vec<_> = self
            .binds
            .iter()
            .map(|shown| {
                json!({
                    "path": shown.bind.target, "source": shown.made.is_none().then_some(&shown.bind.source),
                    "access": access(shown.bind.access), "why": shown.why, "from": shown.from,
                })
            })
            .chain(self.caches.iter().map(|cache| {
                let path = nexus_model::ByteText::from(cache.as_path());
                let from = grants.cache.as_ref().map(|cache| &cache.from);
                json!({"path": path, "access": "write", "why": "caches of this workspace", "from": from})
            }))
            .collect();
        let variables: Vec<_> = self
            .variables
            .iter()
            .map(|one| {
                let value = (!one.passed).then_some(&one.value);
                json!({"name": one.name, "value": value, "passed": one.passed, "from": one.from})
            })
            .collect();
        let mut document = grants_json(grants);
        document["schema"] = "nexus.explain/1".into();
        document["workspace"] =
            json!({"path": nexus_model::ByteText::from(self.workspace.as_path()), "nexus_yaml": self.file()});
        document["paths"] = paths.into();
        if let Some(image) = &self.resolution.image {
            document["image"] = image_json(image);
        }
        document["environment"] = variables.into();
        if !self.secrets.is_empty() {
            let named = |secret: &Request| json!({"name": secret.name, "provider": secret.reference.provider(), "from": "--secret"});
            document["secrets"] = self.secrets.iter().map(named).collect();
        }
        if let Some(network) = &self.resolution.network {
            let rows = network::describe(network, &self.resolution.settings.egress);
            document["network"]["also"] =
                rows.into_iter().map(|(what, from)| json!({"what": what, "from": from})).collect();
        }
        document["changes"] =
            json!({"mode": self.changes, "from": grants.changes.as_ref().map(|changes| &changes.from)});
        document["protected"] =
            json!(DEFAULT_PROTECTED.iter().chain(DEFAULT_PROTECTED_OF_REPOSITORIES).collect::<Vec<_>>());
        let policies = &self.resolution.settings.egress.policies;
        if !policies.is_empty() {
            let rows: Vec<_> = policies.rows().iter().map(|(what, from)| json!({"what": what, "from": from})).collect();
            document["policies"] = json!({"documents": policies.documents(), "effective": rows});
        }
        document["notes"] = json!(self.notes());
        document
    }
}

/// Renders an image, with what it says about its use and what becomes of that.
fn image_json(image: &ImageOfRun) -> Value {
    json!({
        "digest": image.run.root.digest,
        "reference": image.run.reference,
        "command": image.settings.command(),
        "ignored": {"user": image.settings.user, "workdir": image.settings.working_dir},
    })
}

/// Renders the grants of profiles as JSON, before anything of the host is inspected.
pub fn grants_json(grants: &Grants) -> Value {
    let binds =
        |rules: &[nexus_policy::profile::Sourced<nexus_policy::profile::BindRule>], access: &str| -> Vec<Value> {
            rules
                .iter()
                .map(|rule| json!({"src": rule.value.src, "dst": rule.value.dst, "access": access, "from": rule.from}))
                .collect()
        };
    let all_binds = [binds(&grants.ro, "read"), binds(&grants.rw, "write")].concat();
    let limits: Vec<_> = grants
        .limits
        .iter()
        .map(
            |(kind, limit)| json!({"limit": kind.key(), "value": format_limit(*kind, limit.value), "from": limit.from}),
        )
        .collect();
    let tools: Vec<_> =
        grants.toolchains.iter().map(|tool| json!({"name": tool.value.word(), "from": tool.from})).collect();
    let [allow, groups, allow_private] = grants.net.lists();
    json!({
        "schema": "nexus.profile/1",
        "profiles": grants.profiles,
        "toolchains": tools,
        "binds": all_binds,
        "hide": grants.hide,
        "etc": grants.etc,
        "path": grants.path,
        "env": {
            "pass": grants.env_pass.iter().map(|(name, from)| json!({"name": name, "from": from})).collect::<Vec<_>>(),
            "set": grants.env_set.iter().map(|(name, set)| json!({"name": name, "value": set.value, "from": set.from})).collect::<Vec<_>>(),
            "drop": grants.env_drop.iter().map(|(name, from)| json!({"name": name, "from": from})).collect::<Vec<_>>(),
        },
        "network": {
            "mode": grants.net.effective_mode().word(),
            "from": grants.net.mode_from(),
            "allow": allow, "deny": grants.net.deny, "groups": groups,
            "allow_private": allow_private,
            "host_ports": grants.net.host_ports,
            "methods": {
                "allowed": grants.net.effective_methods().word(),
                "from": grants.net.methods.as_ref().map(|methods| &methods.from),
            },
        },
        "limits": limits,
        "protect": grants.protect,
        "debug": grants.debug,
        "auto": {"shown": grants.shows_auto(), "from": grants.auto.as_ref().map(|auto| &auto.from)},
        "cache": grants.cache,
        "changes": grants.changes.as_ref().map(|changes| json!({"mode": changes.value.word(), "from": changes.from})),
    })
}

/// Renders the grants of profiles for people.
pub fn grants_text(grants: &Grants) -> String {
    let mut out = Lines::default();
    out.title("profiles");
    grants.profiles.iter().for_each(|profile| out.row(&profile.name, &profile.source));
    let mut section = |title: &str, rows: Vec<(String, String)>| {
        if !rows.is_empty() {
            out.title(title);
            for (what, from) in &rows {
                out.row(what, from);
            }
        }
    };
    section(
        "toolchains",
        grants.toolchains.iter().map(|one| (one.value.word().to_owned(), one.from.to_string())).collect(),
    );
    let rules = grants.ro.iter().map(|rule| ("read ", rule)).chain(grants.rw.iter().map(|rule| ("write", rule)));
    let mut paths: Vec<_> = rules
        .map(|(access, rule)| {
            let at = rule.value.dst.as_ref().map(|dst| format!(" at {dst}")).unwrap_or_default();
            (format!("{access} {}{at}", rule.value.src), rule.from.to_string())
        })
        .collect();
    paths.extend(grants.etc.iter().map(|name| (format!("read  /etc/{}", name.value), name.from.to_string())));
    paths.extend(grants.hide.iter().map(|one| (format!("hide  {}", one.value), one.from.to_string())));
    section("paths", paths);
    let mut variables: Vec<_> =
        grants.env_pass.iter().map(|(name, from)| (format!("{name} (yours)"), from.to_string())).collect();
    variables.extend(grants.env_set.iter().map(|(name, set)| (format!("{name}={}", set.value), set.from.to_string())));
    variables.extend(grants.env_drop.iter().map(|(name, from)| (format!("{name} (dropped)"), from.to_string())));
    variables.extend(grants.path.iter().map(|one| (format!("PATH {}", one.value), one.from.to_string())));
    section("environment", variables);
    out.text.push_str(&calls(grants));
    out.text.push_str(&network(grants));
    out.text.push_str(&limits(grants));
    if let Some(changes) = &grants.changes {
        out.title("changes");
        out.row(changes.value.word(), &changes.from.to_string());
    }
    if !grants.protect.is_empty() {
        out.title("protected names");
        grants.protect.iter().for_each(|name| out.row(&name.value, &name.from.to_string()));
    }
    out.text
}

fn calls(grants: &Grants) -> String {
    let mut out = Lines::default();
    if let Some(debug) = grants.debug.as_ref().filter(|debug| debug.value) {
        out.title("system calls");
        out.row("trace processes of the sandbox", &debug.from.to_string());
    }
    out.text
}

fn network(grants: &Grants) -> String {
    let mut out = Lines::default();
    let net = &grants.net;
    out.title("network");
    let from = net.mode_from().map_or("always".to_owned(), ToString::to_string);
    out.row(net.effective_mode().word(), &from);
    if let Some(methods) = &net.methods {
        out.row(&format!("methods {}", methods.value.word()), &methods.from.to_string());
    }
    let [allow, groups, allow_private] = net.lists();
    let lists = [("allow", allow), ("allow private", allow_private), ("deny", net.deny.as_slice()), ("group", groups)];
    for (what, rule) in lists.into_iter().flat_map(|(what, rules)| rules.iter().map(move |rule| (what, rule))) {
        out.row(&format!("{what} {}", rule.value), &rule.from.to_string());
    }
    for port in &net.host_ports {
        out.row(&format!("port {} of this machine's loopback", port.value), &port.from.to_string());
    }
    out.text
}

fn limits(grants: &Grants) -> String {
    let mut out = Lines::default();
    out.title("limits");
    for (kind, limit) in &grants.limits {
        out.row(&format!("{} {}", kind.key(), format_limit(*kind, limit.value)), &limit.from.to_string());
    }
    out.text
}

/// Text in sections. File names and values may hold anything; a terminal sees none of it.
#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn head(&mut self, name: &str, value: &str) {
        self.push(format_args!("{name}: {}\n", one_line(value)));
    }

    fn title(&mut self, title: &str) {
        self.push(format_args!("{title}\n"));
    }

    fn row(&mut self, what: &str, from: &str) {
        match from {
            "" => self.push(format_args!("  {}\n", one_line(what))),
            from => self.push(format_args!("  {}  ← {}\n", one_line(what), one_line(from))),
        }
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.text.push_str(&text.to_string());
    }
}
