//! Terminals, execs and forwarded ports in real sandboxes, as root and as an ordinary user.
//!
//! Without the test harness, because the launcher is a second process of this program, and must have one thread.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod commands;
#[path = "../../../../../tests/support/free_user.rs"]
mod free_user;
mod support;
mod terminals;

use nexus_driver_namespace::Namespace;
use nexus_driver_namespace::launcher::{PoolConfig, serve_stdin};
use std::panic::catch_unwind;
use std::process::ExitCode;

const TESTS: &[(&str, fn())] = &[
    ("a_command_has_a_terminal_of_its_own", terminals::a_command_has_a_terminal_of_its_own),
    (
        "a_command_without_a_terminal_has_no_controlling_one",
        terminals::a_command_without_a_terminal_has_no_controlling_one,
    ),
    ("a_new_size_reaches_the_command", terminals::a_new_size_reaches_the_command),
    ("a_new_size_for_no_terminal_changes_nothing", terminals::a_new_size_for_no_terminal_changes_nothing),
    ("ctrl_c_interrupts_only_the_foreground_job", terminals::ctrl_c_interrupts_only_the_foreground_job),
    ("ctrl_z_stops_a_job_and_fg_goes_on_with_it", terminals::ctrl_z_stops_a_job_and_fg_goes_on_with_it),
    ("a_terminal_changes_no_exit_status", terminals::a_terminal_changes_no_exit_status),
    (
        "a_signal_reaches_the_process_group_of_a_command_with_a_terminal",
        terminals::a_signal_reaches_the_process_group_of_a_command_with_a_terminal,
    ),
    ("all_that_was_written_is_there_after_the_end", terminals::all_that_was_written_is_there_after_the_end),
    ("no_command_types_into_its_own_terminal", terminals::no_command_types_into_its_own_terminal),
    ("a_terminal_is_gone_when_its_command_has_ended", terminals::a_terminal_is_gone_when_its_command_has_ended),
    (
        "an_exec_sees_the_main_commands_processes_and_files_and_ends_alone",
        commands::an_exec_sees_the_main_commands_processes_and_files_and_ends_alone,
    ),
    (
        "an_exec_that_does_not_start_reports_why_and_the_sandbox_goes_on",
        commands::an_exec_that_does_not_start_reports_why_and_the_sandbox_goes_on,
    ),
    (
        "protection_from_the_memory_killer_stays_with_the_launcher",
        commands::protection_from_the_memory_killer_stays_with_the_launcher,
    ),
    (
        "what_runs_dies_with_the_main_command_also_without_a_client",
        commands::what_runs_dies_with_the_main_command_also_without_a_client,
    ),
    ("a_signal_before_the_exec_arrives_after_it", commands::a_signal_before_the_exec_arrives_after_it),
    ("a_command_stopped_before_its_exec_delays_no_other", commands::a_command_stopped_before_its_exec_delays_no_other),
    ("a_signal_ends_one_command_and_not_its_neighbours", commands::a_signal_ends_one_command_and_not_its_neighbours),
    (
        "a_flood_of_commands_is_bounded_and_the_sandbox_survives_it",
        commands::a_flood_of_commands_is_bounded_and_the_sandbox_survives_it,
    ),
    (
        "a_flood_of_terminals_is_bounded_and_commands_without_one_go_on",
        commands::a_flood_of_terminals_is_bounded_and_commands_without_one_go_on,
    ),
    (
        "too_many_descriptors_under_way_refuse_a_launch_and_end_nothing",
        commands::too_many_descriptors_under_way_refuse_a_launch_and_end_nothing,
    ),
    (
        "who_asks_without_listening_is_stopped_before_both_sides_wait_for_ever",
        commands::who_asks_without_listening_is_stopped_before_both_sides_wait_for_ever,
    ),
    (
        "a_forwarded_port_reaches_a_server_inside_and_only_there",
        commands::a_forwarded_port_reaches_a_server_inside_and_only_there,
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if has("--as-launcher") {
        let served = serve_stdin(&Namespace::with_defaults(), PoolConfig::default());
        return if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let chosen = TESTS.iter().filter(|(name, _)| filter.is_none_or(|part| name.contains(part.as_str())));
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in chosen {
        // What a test runner asks of a test that it knows nothing of.
        if has("--list") {
            println!("{name}: test");
        } else if catch_unwind(*test).is_ok() {
            println!("test {name} ... ok");
            passed += 1;
        } else {
            println!("test {name} ... FAILED");
            failed += 1;
        }
    }
    if !has("--list") {
        let word = if failed == 0 { "ok" } else { "FAILED" };
        println!("\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out");
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
