#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::{Page, pages};
use crate::args::Cli;
use clap::{Command, CommandFactory};

/// Returns every command that is shown, with the name of its page.
fn commands() -> Vec<(String, Command)> {
    fn below(command: &Command, found: &mut Vec<(String, Command)>) {
        found.push((format!("{}.1", command.get_display_name().unwrap()), command.clone()));
        command.get_subcommands().filter(|sub| !sub.is_hide_set()).for_each(|sub| below(sub, found));
    }
    let mut root = Cli::command().display_name("nexus");
    root.build();
    let mut found = Vec::new();
    below(&root, &mut found);
    found
}

/// A page as it is read: without fonts and escapes of troff.
fn plain(page: &Page) -> String {
    let text = String::from_utf8(page.text.clone()).unwrap();
    ["\\fB", "\\fI", "\\fR", "\\&"]
        .iter()
        .fold(text, |text, mark| text.replace(mark, ""))
        .replace("\\-", "-")
        .replace("\\*(Aq", "'")
}

#[test]
fn every_command_and_flag_says_what_it_does() {
    let all = commands();
    assert!(all.len() > 30, "{} commands", all.len());
    for (name, command) in all {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(about.len() > 8, "{name}: {about:?}");
        // clap takes the description of a flattened group when nothing hinders it.
        assert!(!about.starts_with('`') && !about.ends_with('.'), "{name}: {about:?}");
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.len() > 5, "{name}: {}: {help:?}", argument.get_id());
            for value in argument.get_possible_values().iter().filter(|value| !value.is_hide_set()) {
                let is_shell = argument.get_id() == "shell";
                assert!(is_shell || value.get_help().is_some(), "{name}: {}: {}", argument.get_id(), value.get_name());
            }
        }
    }
}

#[test]
fn every_command_and_flag_has_its_entry_in_the_manual() {
    let made = pages(&Cli::command()).unwrap();
    let all = commands();
    let names: Vec<_> = made.iter().map(|page| page.name.clone()).collect();
    assert_eq!(names, all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
    for (page, (name, command)) in made.iter().zip(&all) {
        let text = plain(page);
        let about = command.get_about().unwrap().to_string();
        let title = name.strip_suffix(".1").unwrap();
        assert!(text.contains(&format!("\n{title} - {about}\n")), "{name}: {text}");
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let head = match argument.get_long() {
                Some(long) => format!("--{long}"),
                None => argument.get_value_names().unwrap().join(" "),
            };
            let help = argument.get_long_help().or(argument.get_help()).unwrap().to_string();
            let found = text.split("\n.TP\n").skip(1).any(|entry| {
                let (first, rest) = entry.split_once('\n').unwrap();
                let words: Vec<_> = first.split([' ', ',', '[', ']', '<', '>']).collect();
                words.contains(&&*head) && rest.starts_with(&help)
            });
            assert!(found, "{name}: no entry {head}: {help}\n{text}");
        }
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            assert!(text.contains(&format!("\n{title}-{}(1)\n", sub.get_name())), "{name}: {}", sub.get_name());
        }
        let hidden = command.get_arguments().filter(|argument| argument.is_hide_set());
        for flag in hidden.filter_map(|argument| argument.get_long()) {
            assert!(!text.contains(&format!("--{flag}")), "{name} offers --{flag}, which cannot be used");
        }
        assert!(!text.contains("__supervise"), "{name}");
    }
}
