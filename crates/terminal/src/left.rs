//! Terminal settings that a sandbox switched and did not switch back.

use crate::append::append;
use std::collections::{BTreeMap, BTreeSet};
use vte::Params;

/// Terminal settings that a filter let through, where they differ from a fresh terminal.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Left {
    /// Switched private modes, with the value that a fresh terminal has.
    modes: BTreeMap<u16, bool>,
    coloured: bool,
    /// True if new characters push old ones to the side.
    pub insert: bool,
    /// True if lines scroll in a part of the screen only.
    pub region: bool,
    /// True if the keypad sends its own sequences.
    pub keypad: bool,
    /// True if the cursor has another form.
    pub cursor_style: bool,
    /// Character sets other than US, by their designator.
    sets: BTreeSet<u8>,
    /// True if the second character set is in use.
    shifted: bool,
}

/// Modes that show another screen: they come last, so that the others are switched where they were set.
const SCREENS: &[u16] = &[47, 1047, 1049];

impl Left {
    /// Records that a private mode was switched.
    pub fn mode(&mut self, number: u16, on: bool, fresh: bool) {
        // Saving and restoring the cursor leaves nothing.
        if number == 1048 || on == fresh {
            self.modes.remove(&number);
        } else {
            self.modes.insert(number, fresh);
        }
    }

    /// Records a choice of colours and text attributes; a sequence of nothing but 0 resets them.
    pub fn graphics(&mut self, params: &Params) {
        self.coloured = params.iter().any(|param| param != [0]);
    }

    /// Records the choice of a character set.
    pub fn charset(&mut self, set: u8, last: u8) {
        if last == b'B' {
            self.sets.remove(&set);
        } else {
            self.sets.insert(set);
        }
    }

    /// Records SO and SI, which switch between the two character sets.
    pub fn shift(&mut self, byte: u8) {
        match byte {
            0x0e => self.shifted = true,
            0x0f => self.shifted = false,
            _ => {}
        }
    }

    /// Returns the sequences that restore a fresh terminal. Empty for an unchanged one: some of the sequences move the
    /// cursor.
    pub fn put_back(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let (screens, others): (Vec<_>, Vec<_>) = self.modes.iter().partition(|(mode, _)| SCREENS.contains(mode));
        for (mode, fresh) in others.into_iter().chain(screens) {
            append(&mut out, format_args!("\x1b[?{mode}{}", if *fresh { 'h' } else { 'l' }));
        }
        let rest: [(bool, &[u8]); 6] = [
            // Setting the region moves the cursor home.
            (self.region, b"\x1b7\x1b[r\x1b8"),
            (self.insert, b"\x1b[4l"),
            (self.keypad, b"\x1b>"),
            (self.cursor_style, b"\x1b[0 q"),
            (self.shifted, b"\x0f"),
            (self.coloured, b"\x1b[0m"),
        ];
        for set in &self.sets {
            out.extend_from_slice(&[0x1b, *set, b'B']);
        }
        rest.iter().filter(|(changed, _)| *changed).for_each(|(_, bytes)| out.extend_from_slice(bytes));
        out
    }
}
