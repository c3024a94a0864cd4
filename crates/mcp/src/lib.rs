//! `nexus mcp`: the tools of an agent over the Model Context Protocol, on standard input and output.
//!
//! ```text
//!  client ─ lines ─▶ serve ─ rpc: what it is ─ era: which generation ─▶ tools: a thread for each call
//!                                                                        │ narrow: may a call ask for that?
//!          ◀─ wire: answers, progress ◀──────────────────────────────────┤
//!                                            commands: a detached sandbox for each command
//!                                            files:    commands of Nexus's own in such sandboxes
//!                                            changes:  `nexus changes`, for runs of this server
//! ```
//! Each command, and each look at a file, is a sandbox with a supervisor of its own, as `nexus run --detach` makes it: a path that a
//! tool names means what it means to a command, and no code of the host opens it. The server ends what it started when its client
//! leaves.
//!
//! * [`answers`]: puts the answers about commands together.
//! * [`call`]: one call of a tool.
//! * [`changes`]: shows changes that wait, and decides about them.
//! * [`commands`]: starts sandboxes, follows their output and ends them.
//! * [`denial`]: says what was denied, by which rule, and what would allow it.
//! * [`era`]: tells the two generations of the protocol apart.
//! * [`files`]: reads, writes, lists and searches files of the workspace.
//! * [`lines`]: cuts the input into bounded lines.
//! * [`names`]: reads the names of changes.
//! * [`narrow`]: turns what a call asks for into flags, unless it is more than the server has.
//! * [`output`]: keeps the output of commands.
//! * [`own_directory`]: keeps the output of one server's commands.
//! * [`params`]: reads the arguments of a tool.
//! * [`paths`]: decides which paths a tool may name.
//! * [`rpc`]: reads and makes the messages of JSON-RPC.
//! * [`schemas`]: describes the tools.
//! * [`serve`]: talks to the client.
//! * [`tools`]: what each tool does.
//! * [`wire`]: the one place that writes to the client.

#![forbid(unsafe_code)]

pub mod answers;
pub mod call;
pub mod changes;
pub mod commands;
pub mod denial;
pub mod era;
pub mod files;
pub mod lines;
pub mod names;
pub mod narrow;
pub mod output;
pub mod own_directory;
pub mod params;
pub mod paths;
pub mod rpc;
pub mod schemas;
pub mod serve;
pub mod tools;
pub mod wire;
