//! Tables of the control functions that pass. A function that is in no table does not pass.
//!
//! Left out on purpose:
//! * whatever makes a terminal answer, since the answer is typed into the next program that reads it: device
//!   attributes, status and mode reports, window reports, ENQ, and DCS requests (CVE-2003-0063 and its kind);
//! * whatever reaches beyond the screen: titles, clipboard, links, printing, window size, fonts and colour tables;
//! * resets and saved modes, which undo what the caller had set.

use crate::append::append;
use crate::left::Left;
use crate::mode::Mode;
use vte::Params;

/// Private modes of xterm that programs on a screen use, and whether a fresh terminal has them.
const MODES: &[(u16, bool)] = &[
    (1, false),    // cursor keys
    (6, false),    // origin
    (7, true),     // wrap around
    (12, false),   // blinking cursor
    (25, true),    // visible cursor
    (47, false),   // other screen
    (66, false),   // keypad
    (1000, false), // mouse
    (1002, false),
    (1003, false),
    (1004, false), // focus
    (1005, false),
    (1006, false),
    (1007, false), // wheel as cursor keys
    (1015, false),
    (1016, false),
    (1047, false), // other screen
    (1048, false), // save the cursor
    (1049, false), // both
    (2004, false), // bracketed paste
    (2026, false), // synchronised output
];

/// Largest number of repetitions of a character that one sequence may ask for.
const MAX_REPEATS: u16 = 9999;

/// Reports whether a control character of C0 passes.
pub fn c0(mode: Mode, byte: u8) -> bool {
    match byte {
        // BS HT LF CR
        0x08 | 0x09 | 0x0a | 0x0d => true,
        // BEL VT FF SO SI
        0x07 | 0x0b | 0x0c | 0x0e | 0x0f => mode == Mode::Interactive,
        _ => false,
    }
}

/// Writes an escape sequence (ESC, intermediates, final byte) if it passes.
pub fn escape(mode: Mode, intermediates: &[u8], last: u8, left: &mut Left, out: &mut Vec<u8>) {
    if mode == Mode::Plain {
        return;
    }
    match (intermediates, last) {
        // Save and restore the cursor; index, next line, reverse index.
        ([], b'7' | b'8' | b'D' | b'E' | b'M') => {}
        ([], b'=' | b'>') => left.keypad = last == b'=',
        // Character sets: line drawing, UK, US, alternate ROM.
        ([set @ (b'(' | b')' | b'*' | b'+')], b'0' | b'A' | b'B' | b'1' | b'2') => left.charset(*set, last),
        _ => return,
    }
    out.push(0x1b);
    out.extend_from_slice(intermediates);
    out.push(last);
}

/// Writes a control sequence (CSI) if it passes, in one form whatever form it came in.
pub fn control(mode: Mode, params: &Params, intermediates: &[u8], last: char, left: &mut Left, out: &mut Vec<u8>) {
    let first = params.iter().next().and_then(|param| param.first().copied()).unwrap_or(0);
    let plain = params.iter().all(|param| param.len() == 1);
    let count = params.len();
    match (intermediates, last) {
        ([], 'm') => left.graphics(params),
        _ if mode == Mode::Plain => return,
        _ if !plain => return,
        ([b'?'], 'h' | 'l') => return private_modes(params, last, left, out),
        // Insert and replace.
        ([], 'h' | 'l') if count == 1 && first == 4 => left.insert = last == 'h',
        ([], 'A'..='I' | 'Z' | '`' | 'a' | 'd' | 'e' | 'f') => {}
        // Erasing the lines that scrolled away would take the caller's own history along.
        ([] | [b'?'], 'J' | 'K') if first <= 2 && count == 1 => {}
        // T with more parameters is a kind of mouse tracking that makes the terminal wait.
        ([], 'X' | '@' | 'L' | 'M' | 'P' | 'S' | 'T') if count == 1 => {}
        ([], 'b') if count == 1 && first <= MAX_REPEATS => {}
        ([], 'r') if count <= 2 => left.region = true,
        // Without parameters: save and restore the cursor.
        ([], 's' | 'u') if count == 1 && first == 0 => {}
        ([b' '], 'q') if count == 1 && first <= 6 => left.cursor_style = first != 0,
        _ => return,
    }
    write(params, intermediates, last, out);
}

/// Writes the modes of a sequence that pass and records each as changed or restored.
fn private_modes(params: &Params, last: char, left: &mut Left, out: &mut Vec<u8>) {
    for number in params.iter().filter_map(|param| param.first().copied()) {
        if let Some((_, fresh)) = MODES.iter().find(|(known, _)| *known == number) {
            left.mode(number, last == 'h', *fresh);
            append(out, format_args!("\x1b[?{number}{last}"));
        }
    }
}

fn write(params: &Params, intermediates: &[u8], last: char, out: &mut Vec<u8>) {
    // Marks such as `?` come before the parameters, all others after them.
    let (marks, after): (Vec<u8>, Vec<u8>) = intermediates.iter().partition(|byte| (0x3c..=0x3f).contains(*byte));
    out.extend_from_slice(b"\x1b[");
    out.extend_from_slice(&marks);
    for (at, param) in params.iter().enumerate() {
        if at > 0 {
            out.push(b';');
        }
        for (at, part) in param.iter().enumerate() {
            let colon = if at > 0 { ":" } else { "" };
            append(out, format_args!("{colon}{part}"));
        }
    }
    out.extend_from_slice(&after);
    let mut letter = [0u8; 4];
    out.extend_from_slice(last.encode_utf8(&mut letter).as_bytes());
}
