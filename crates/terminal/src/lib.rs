//! Output of a sandbox as a terminal may show it. Pure: bytes in, bytes out, no descriptor and no setting of a terminal.
//!
//! ```text
//!  stream of a sandbox ─▶ filter ─ a sequence? ─▶ allow: tables ─▶ written again from its parts ─▶ bytes for a terminal
//!                           │                       └─▶ left: settings that the sandbox changed
//!                           └─ the stream has ended ─▶ left ─▶ sequences that change them back
//!  one line of text (a name, a path, a message) ─▶ visible ─▶ characters that act or hide, as escapes
//! ```
//! A terminal obeys the bytes that it shows (CVE-2021-25743): they can set its title, fill the clipboard, print, or make the
//! terminal type an answer into the next program.
//!
//! * `filter` copies text and drives the parser.
//! * `allow` holds the tables: sequences that are in no table do not pass.
//! * `left` remembers the settings that a stream changed and did not change back.
//! * [`visible`] makes single lines harmless that Nexus itself prints.
//! * `mode` and `append` are shared by the others.

#![forbid(unsafe_code)]

mod allow;
mod append;
mod filter;
mod left;
mod mode;
pub mod visible;

pub use filter::Filter;
pub use mode::Mode;
