//! The tools of agents: a client that knows nothing but the protocol drives a server.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use support::{Bench, on_each_bench, stderr, stdout};

/// The client and its scenarios.
const CLIENT: &str = include_str!("mcp/client.py");

/// Plays one scenario in the workspace.
fn play(bench: &Bench, scenario: &str, words: &[&str]) {
    let mut python = bench.command("python3");
    let done = python.arg("-c").arg(CLIENT).arg(bench.program()).arg(scenario).args(words).output().unwrap();
    assert!(done.status.success(), "{}: {scenario}: {}{}", bench.who(), stdout(&done), stderr(&done));
    assert!(bench.leftovers().is_empty(), "{}: {scenario}: {:?}", bench.who(), bench.leftovers());
}

#[test]
fn every_tool_does_what_it_says_in_both_generations_of_the_protocol() {
    on_each_bench(|bench| {
        play(&bench, "every_tool", &["modern"]);
    });
    on_each_bench(|bench| {
        play(&bench, "every_tool", &["legacy"]);
    });
}

#[test]
fn no_path_of_a_tool_leads_out_of_the_workspace_and_a_tool_may_what_a_command_may() {
    on_each_bench(|bench| play(&bench, "hostile_paths", &[]));
}

#[test]
fn a_call_that_is_cancelled_ends_all_that_it_started() {
    on_each_bench(|bench| play(&bench, "cancelled", &[]));
}

#[test]
fn a_server_that_ends_takes_along_what_it_started() {
    on_each_bench(|bench| {
        play(&bench, "leaves_nothing", &["eof"]);
        play(&bench, "leaves_nothing", &["signal"]);
        play(&bench, "leaves_nothing", &["kill"]);
    });
}

#[test]
fn what_is_no_message_of_the_protocol_is_answered_and_costs_nothing() {
    on_each_bench(|bench| play(&bench, "bad_messages", &[]));
}

#[test]
fn a_call_may_only_ask_for_less_than_the_server_has() {
    on_each_bench(|bench| play(&bench, "narrows", &[]));
}

#[test]
fn thirty_typical_denials_name_cause_rule_and_remedy_as_the_guide_says() {
    let page = include_str!("../../../docs/guide/agents.md");
    let (_, table) = page.split_once("## Denials").unwrap();
    on_each_bench(|bench| play(&bench, "denials", &[table]));
}

#[test]
fn two_servers_know_nothing_of_each_other() {
    on_each_bench(|bench| play(&bench, "two_servers", &[]));
}
