//! The words that doc comments, messages and names of the project avoid, each with the word to use instead.
//!
//! A word that has an ordinary meaning as well is counted only where it is a name of ours: `order` in a sentence is
//! English, a type `Order` is not a term of the field. `seal` is not in the list, because the kernel seals memory files, and `machine` is not either.

/// Words that begin a doc comment that is a riddle: the reader learns a question instead of what the item is.
pub const QUESTIONS: &[&str] = &["what", "who", "whose", "which", "whether", "how", "where", "why"];

/// Words and phrases that no sentence has, in lower case, with what to write instead.
pub const IN_SENTENCES: &[(&str, &str)] = &[
    ("folder", "directory"),
    ("folders", "directories"),
    ("subfolder", "subdirectory"),
    ("subfolders", "subdirectories"),
    ("whoever", "the actor: process, thread, user, connection, daemon"),
    ("somebody", "the actor: process, thread, user, connection, daemon"),
    ("nobody", "the actor: no process, no thread, no user"),
    ("told", "recorded or reported"),
    ("anew", "again or afresh"),
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("beneath", "under or below"),
    ("is no", "is not a"),
    ("are no", "are not"),
    ("by itself", "on its own"),
    ("once more", "again"),
    ("further command", "exec"),
    ("further commands", "execs"),
    ("workshop", "launcher state"),
    ("begun", "warm or pre-forked"),
    ("undertaker", "closer"),
    ("bury", "close later"),
    ("buried", "closed later"),
    ("spares", "pool of layers"),
    ("lent", "leased"),
    ("walls", "confinement"),
    ("furnish", "populate"),
    ("furnished", "populated"),
    ("adorn", "apply metadata"),
    ("adorned", "with its metadata applied"),
    ("wish", "command or action"),
    ("wishes", "commands or actions"),
    ("tired", "exhausted"),
    ("patience", "timeout"),
    ("farewell", "closing"),
    ("judge", "evaluate or classify"),
    ("judges", "evaluates or classifies"),
    ("judged", "evaluated or classified"),
    ("nonsense", "corrupt"),
    ("marker", "canary"),
];

/// Words that no name has as one of its parts (`folder` in `open_folder`), with what to use instead.
pub const IN_NAMES: &[(&str, &str)] = &[
    ("folder", "directory"),
    ("folders", "directories"),
    ("most", "MAX_ in a constant"),
    ("least", "MIN_ in a constant"),
    ("whoever", "the actor"),
    ("somebody", "the actor"),
    ("nobody", "the actor"),
    ("told", "recorded or reported"),
    ("anew", "again"),
    ("mend", "fix"),
    ("workshop", "launcher"),
    ("begun", "warm or prefork"),
    ("undertaker", "Closer"),
    ("bury", "close_later"),
    ("spare", "pool"),
    ("spares", "LayerPool"),
    ("spent", "deferred"),
    ("lent", "leased"),
    ("walls", "confinement"),
    ("dress", "mount"),
    ("furnish", "populate"),
    ("adorn", "apply_metadata"),
    ("heard", "Event"),
    ("wish", "Command or Action"),
    ("tired", "exhausted"),
    ("patience", "timeout"),
    ("farewell", "closing"),
    ("judge", "evaluate or classify"),
    ("judged", "evaluated or classified"),
    ("marker", "canary"),
];

/// Names that are not used as they stand, with what to use instead.
pub const WHOLE_NAMES: &[(&str, &str)] = &[
    ("Kept", "LauncherState"),
    ("Keep", "PoolConfig"),
    ("dead", "closing"),
    ("Order", "ResolvedRun, LaunchMessage or ProxyRequest"),
    ("order", "resolved_run, launch_message or proxy_request"),
    ("Places", "StateDir"),
    ("Alone", "CommitLock"),
    ("leader", "main command"),
    ("Caller", "Attendant or ConnectionOwner"),
    ("Inside", "SandboxControl, TunnelContext or CloneSite"),
    ("Tell", "ServerMessage"),
    ("hear", "recv"),
    ("say", "send"),
    ("Said", "RecordState"),
    ("NothingYet", "Empty"),
    ("Nonsense", "Corrupt"),
    ("Way", "Ingress"),
    ("Door", "ListenerKind"),
    ("Grounds", "DecisionContext"),
    ("Basis", "Grant"),
    ("Ticket", "ConnectionGuard"),
    ("Moment", "MonotonicMs"),
    ("Shelf", "ProfileStore or BufferPool"),
    ("Desk", "Prompter"),
    ("Own", "OwnedSession"),
    ("About", "SessionInfo"),
    ("Ending", "ExitRecord"),
    ("Keeper", "SandboxProcess"),
    ("has_come_up", "on_ready"),
    ("Narrower", "PolicyBound"),
    ("mark", "label"),
    ("people", "render_text"),
    ("look", "inspect"),
];

/// Names that no type and no module has. A variant may have them: `ask` is a mode of `--changes`.
pub const DECLARED: &[(&str, &str)] = &[("Ask", "ClientMessage")];

/// Names of other libraries, which are as they are.
pub const OF_OTHERS: &[&str] = &["spare_capacity_mut"];

/// Stems of source files that do not say what the file holds, with the stem to use instead.
pub const FILES: &[(&str, &str)] = &[
    ("over", "lifecycle"),
    ("rest", "partial"),
    ("facts", "git_rules"),
    ("emit", "actions"),
    ("shared", "hardlinks"),
    ("apart", "overlay_compat"),
];
