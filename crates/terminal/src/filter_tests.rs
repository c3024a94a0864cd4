//! Tests of the filter: vectors by name, and properties over random streams.

use super::*;
use proptest::prelude::*;

fn shown(mode: Mode, bytes: &[u8]) -> Vec<u8> {
    let (mut filter, mut out) = (Filter::new(mode), Vec::new());
    filter.push(bytes, &mut out);
    out
}

fn text(mode: Mode, bytes: &[u8]) -> String {
    String::from_utf8(shown(mode, bytes)).unwrap()
}

/// Looks at what came out with the parser alone, and knows nothing of the filter's tables.
#[derive(Default)]
struct Judge {
    plain: bool,
    wrong: Vec<String>,
}

impl Perform for Judge {
    fn print(&mut self, c: char) {
        if c.is_control() || "\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}".contains(c) {
            self.wrong.push(format!("{c:?}"));
        }
    }
    fn execute(&mut self, byte: u8) {
        let fine: &[u8] = if self.plain { b"\x08\t\n\r" } else { b"\x07\x08\t\n\x0b\x0c\r\x0e\x0f" };
        if !fine.contains(&byte) {
            self.wrong.push(format!("C {byte:#x}"));
        }
    }
    fn hook(&mut self, _: &Params, _: &[u8], _: bool, action: char) {
        self.wrong.push(format!("DCS {action}"));
    }
    fn osc_dispatch(&mut self, params: &[&[u8]], _: bool) {
        self.wrong.push(format!("OSC {params:?}"));
    }
    fn csi_dispatch(&mut self, params: &Params, marks: &[u8], ignore: bool, action: char) {
        let first = params.iter().next().map_or(0, |param| param[0]);
        let fine = match (marks, action) {
            ([], 'm') => true,
            _ if self.plain => false,
            ([b'?'], 'h' | 'l') => ![3, 40, 80, 1001].contains(&first),
            ([b'?'] | [], 'J') => first != 3,
            ([b'?'], 'K') | ([b' '], 'q') => true,
            ([], 'h' | 'l') => first == 4,
            ([], 's' | 'u') => first == 0,
            ([], 'T') => params.len() == 1,
            ([], other) => !"cginopqtvwxyz|}~^NOQRUVWY\\]_jk".contains(other),
            _ => false,
        };
        if ignore || !fine {
            self.wrong.push(format!("CSI {marks:?} {params:?} {action}"));
        }
    }
    fn esc_dispatch(&mut self, marks: &[u8], ignore: bool, byte: u8) {
        let fine = matches!((marks, byte), ([], b'7' | b'8' | b'D' | b'E' | b'M' | b'=' | b'>'))
            || matches!((marks, byte), ([b'(' | b')' | b'*' | b'+'], b'0' | b'A' | b'B' | b'1' | b'2'));
        if ignore || !fine || self.plain {
            self.wrong.push(format!("ESC {marks:?} {byte:#x}"));
        }
    }
}

fn judged(mode: Mode, bytes: &[u8]) -> Vec<String> {
    let mut judge = Judge { plain: mode == Mode::Plain, ..Judge::default() };
    Parser::new().advance(&mut judge, bytes);
    judge.wrong
}

#[test]
fn what_reaches_beyond_the_screen_or_makes_a_terminal_answer_never_passes() {
    let hostile: &[&[u8]] = &[
        b"\x1b]0;title\x07",
        b"\x1b]2;title\x1b\\",
        b"\x1b]52;c;cm0gLXJmIH4=\x07",
        b"\x1b]8;;http://x\x1b\\",
        b"\x1b]8;;\x1b\\",
        b"\x1b]7;file:///\x07",
        b"\x1b]1337;File=x\x07",
        b"\x1b]10;?\x07",
        b"\x1bP$qm\x1b\\",
        b"\x1bP+q544e\x1b\\",
        b"\x1bPq#0;2;0;0;0\x1b\\",
        b"\x1b_Gf=24;AAAA\x1b\\",
        b"\x1b^privacy\x1b\\",
        b"\x1bXstring\x1b\\",
        b"\x05",
        b"\x1b[c",
        b"\x1b[>c",
        b"\x1b[=c",
        b"\x1bZ",
        b"\x1b[5n",
        b"\x1b[6n",
        b"\x1b[?6n",
        b"\x1b[?2026$p",
        b"\x1b[4$p",
        b"\x1b[>q",
        b"\x1b[x",
        b"\x1b[21t",
        b"\x1b[8;10;10t",
        b"\x1b[5i",
        b"\x1b[?5i",
        b"\x1b[4i",
        b"\x1bc",
        b"\x1b[!p",
        b"\x1b[61\"p",
        b"\x1b[?3h",
        b"\x1b[?1001h",
        b"\x1b[?s",
        b"\x1b[?1049s",
        b"\x1b[?1049r",
        b"\x1b[3J",
        b"\x1b[1;2;3;4;5T",
        b"\x1b[>4;2m",
        b"\x1b[>1u",
        b"\x1b[=1u",
        b"\x1b[?u",
        b"\x1b[20h",
        b"\x1b[2h",
        b"\x1b#8",
        b"\x1b%G",
        b"\x1b%@",
        b"\x1bn",
        b"\x1b|",
        b"\x1b[99999999b",
        b"\x1b[1;2*y",
        b"\xc2\x9b5n",
        b"\xc2\x9d0;x\xc2\x9c",
        b"\x9b5n",
        b"\x9d0;x\x07",
        b"\x7f",
        b"\x00",
        b"\x18",
    ];
    for bytes in hostile {
        for mode in [Mode::Plain, Mode::Interactive] {
            let out = shown(mode, &[b"a", *bytes, b"b"].concat());
            assert!(
                !out.contains(&ESC) && !out.iter().any(|byte| [0x05, 0x07, 0x7f].contains(byte) && bytes[0] != 0x9d),
                "{:?} gave {:?}",
                String::from_utf8_lossy(bytes),
                String::from_utf8_lossy(&out)
            );
            assert!(out.starts_with(b"a") && out.ends_with(b"b"), "{bytes:?} took its neighbours along");
            assert_eq!(judged(mode, &out), Vec::<String>::new());
        }
    }
}

#[test]
fn characters_that_turn_the_reading_direction_never_pass_and_their_neighbours_do() {
    let shown_as =
        "if admin { \u{202e}\u{2066}// only for }\u{2069} \u{2066}x\u{202a}\u{202b}\u{202c}\u{202d}\u{2067}\u{2068}";
    for mode in [Mode::Plain, Mode::Interactive] {
        assert_eq!(text(mode, shown_as.as_bytes()), "if admin { // only for } x");
        assert_eq!(text(mode, b"\x1b[1m\xe2\x80\xae!\x1b[0m"), "\x1b[1m!\x1b[0m");
        let neighbours = "\u{2029}\u{202f}\u{2065}\u{206a}\u{2010}—“”…→✓⠿שלום";
        assert_eq!(text(mode, neighbours.as_bytes()), neighbours);
        let cut: Vec<u8> = {
            let (mut filter, mut out) = (Filter::new(mode), Vec::new());
            "a\u{202e}b→".bytes().for_each(|byte| filter.push(&[byte], &mut out));
            out
        };
        assert_eq!(cut, "ab→".as_bytes());
    }
}

#[test]
fn what_programs_on_a_screen_need_passes_in_interactive_mode_alone() {
    let kind: &[&str] = &[
        "\x1b[2J\x1b[H",
        "\x1b[10;20H",
        "\x1b[3A",
        "\x1b[K",
        "\x1b[2K",
        "\x1b[1;24r",
        "\x1b[?25l",
        "\x1b[?1049h",
        "\x1b[?2004h",
        "\x1b[?1000h",
        "\x1b[?1006h",
        "\x1b(0",
        "\x1b(B",
        "\x1b7",
        "\x1b8",
        "\x1bM",
        "\x1b=",
        "\x1b>",
        "\x1b[5L",
        "\x1b[2M",
        "\x1b[3P",
        "\x1b[4@",
        "\x1b[1S",
        "\x1b[1T",
        "\x1b[4h",
        "\x1b[6 q",
        "\x1b[7X",
        "\x1b[80b",
        "\x1b[5G",
        "\x1b[5d",
        "\x07",
        "\x0e",
        "\x0f",
    ];
    for bytes in kind {
        let out = text(Mode::Interactive, bytes.as_bytes());
        assert_eq!(text(Mode::Interactive, out.as_bytes()), out);
        assert_eq!(out.replace("[0", "["), bytes.replace("[0", "["), "{bytes:?} gave {out:?}");
        assert_eq!(text(Mode::Plain, bytes.as_bytes()), "", "{bytes:?}");
    }
}

#[test]
fn colours_text_and_line_ends_pass_in_both_modes() {
    for mode in [Mode::Plain, Mode::Interactive] {
        for same in [
            "",
            "plain\r\n\ttext\x08",
            "grün 漢字 🎉 «°\u{a0}»",
            "\x1b[1;31mred\x1b[0m",
            "\x1b[38;2;1;2;3mx",
            "\x1b[4:3mx",
            "\x1b[38:2::1:2:3m",
        ] {
            let wanted = same.replace("38:2::1", "38:2:0:1");
            assert_eq!(text(mode, same.as_bytes()), wanted, "{mode:?}");
        }
    }
    assert_eq!(text(Mode::Plain, b"\x1b[01;31m\x1b[Kx\x1b[m\x1b[K"), "\x1b[1;31mx\x1b[0m");
}

#[test]
fn bytes_that_are_no_characters_are_shown_as_such() {
    assert_eq!(text(Mode::Plain, b"a\xffb\xe2\x82"), "a\u{fffd}b");
    assert_eq!(text(Mode::Plain, b"\xe2\x82\x1b[0mx"), "\u{fffd}\x1b[0mx");
    assert_eq!(text(Mode::Plain, b"\xed\xa0\x80"), "\u{fffd}\u{fffd}\u{fffd}");
}

#[test]
fn a_string_without_an_end_uses_no_memory_and_an_interruption_ends_it() {
    let (mut filter, mut out) = (Filter::new(Mode::Interactive), Vec::new());
    filter.push(b"\x1b]0;", &mut out);
    for _ in 0..1000 {
        filter.push(&[b'x'; 4096], &mut out);
    }
    assert_eq!((out.len(), filter.cut.len()), (0, 0));
    filter.interrupt();
    filter.push(b"seen", &mut out);
    assert_eq!(out, b"seen");
}

#[test]
fn the_end_puts_back_what_was_switched_and_nothing_else() {
    let end = |bytes: &[u8]| {
        let mut filter = Filter::new(Mode::Interactive);
        filter.push(bytes, &mut Vec::new());
        String::from_utf8(filter.put_back()).unwrap()
    };
    assert_eq!(end(b"text\x1b[31mred\x1b[0m\x1b[?1049h\x1b[?1049l\x1b[?25l\x1b[?25h"), "");
    assert_eq!(end(b"\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[31m"), "\x1b[?25h\x1b[?2004l\x1b[?1049l\x1b[0m");
    assert_eq!(end(b"\x1b[2;5r"), "\x1b7\x1b[r\x1b8");
    assert_eq!(end(b"\x1b(0\x0e\x1b=\x1b[4h\x1b[5 q"), "\x1b(B\x1b[4l\x1b>\x1b[0 q\x0f");
    assert_eq!(end(b"\x1b[?1000;1006h"), "\x1b[?1000l\x1b[?1006l");
}

/// Bytes that make sequences likely.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..6),
        4 => "[ -~]{0,8}".prop_map(String::into_bytes),
        4 => "\x1b\\[[?>=! $]?[0-9;:]{0,8}[ !\"$']?[@-~]".prop_map(String::into_bytes),
        2 => "\x1b[\\[\\]PX^_()#%*+]?[!-~]?".prop_map(String::into_bytes),
        2 => "\x1b\\][0-9]{1,3};[a-z\u{e9}]{0,5}(\x07|\x1b\\\\|\u{9c})?".prop_map(String::into_bytes),
        2 => "\\PC{0,4}".prop_map(String::into_bytes),
        1 => "[\u{2020}-\u{2070}]{1,3}".prop_map(String::into_bytes),
        1 => "[\u{80}-\u{a5}\x00-\x1f]{1,3}".prop_map(String::into_bytes),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whatever_goes_in_only_allowed_sequences_come_out(bytes in stream()) {
        for mode in [Mode::Plain, Mode::Interactive] {
            let out = shown(mode, &bytes);
            prop_assert!(std::str::from_utf8(&out).is_ok());
            prop_assert_eq!(judged(mode, &out), Vec::<String>::new());
            prop_assert_eq!(shown(mode, &out), out);
        }
    }

    #[test]
    fn it_does_not_matter_how_a_stream_is_cut(bytes in stream(), cuts in proptest::collection::vec(0usize..100, 0..6)) {
        let whole = shown(Mode::Interactive, &bytes);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let (mut filter, mut out, mut from) = (Filter::new(Mode::Interactive), Vec::new(), 0);
        for cut in cuts {
            filter.push(&bytes[from..cut], &mut out);
            // Never half a sequence, wherever it is cut.
            prop_assert_eq!(judged(Mode::Interactive, &[&out[..], b"5n"].concat()), Vec::<String>::new());
            from = cut;
        }
        prop_assert_eq!(out, whole);
    }
}
