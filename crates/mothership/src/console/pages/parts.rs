//! Parts that several pages have.

use crate::console::html::Html;
use crate::store::types::DirectiveLine;
use nexus_api::Timestamp;
use nexus_api::mothership::Approval;
use nexus_model::approval::ApprovalState;
use nexus_model::directive::State;
use url::form_urlencoded;

/// Shape, class and word of a state: a state is never shown by its colour alone.
fn appearance(state: State) -> (&'static str, &'static str, &'static str) {
    const CIRCLE: &str = "<svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><circle cx=\"8\" cy=\"8\" r=\"6\"/></svg>";
    const PLAY: &str = "<svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><path d=\"M4 2l10 6-10 6z\"/></svg>";
    const TICK: &str = "<svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><path d=\"M2 9l4 4 8-10\"/></svg>";
    const CROSS: &str = "<svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><path d=\"M3 3l10 10M13 3L3 13\"/></svg>";
    const CLOCK: &str = "<svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><circle cx=\"8\" cy=\"8\" r=\"6\"/><path d=\"M8 4v4l3 2\"/></svg>";
    const SLASH: &str = "<svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><circle cx=\"8\" cy=\"8\" r=\"6\"/><path d=\"M4 12l8-8\"/></svg>";
    const DIAMOND: &str = "<svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><path d=\"M8 1l7 7-7 7-7-7z\"/></svg>";
    match state {
        State::AwaitingApproval => (DIAMOND, "state s-wait", "Asks"),
        State::Queued => (CIRCLE, "state s-wait", "Queued"),
        State::Leased => (CIRCLE, "state s-run", "Claimed"),
        State::Running => (PLAY, "state s-run", "Running"),
        State::Succeeded => (TICK, "state s-ok", "Succeeded"),
        State::Failed => (CROSS, "state s-bad", "Failed"),
        State::Canceled => (SLASH, "state s-off", "Canceled"),
        State::TimedOut => (CLOCK, "state s-bad", "Timed out"),
        State::Rejected => (CROSS, "state s-bad", "Rejected"),
    }
}

/// Writes the state of an approval. It has the shape of the state of a directive that means the same.
pub fn approval_state(html: &mut Html, state: ApprovalState) {
    let (like, word) = match state {
        ApprovalState::Pending => (State::AwaitingApproval, "Asks"),
        ApprovalState::Granted => (State::Queued, "Granted"),
        ApprovalState::Used => (State::Succeeded, "Used"),
        ApprovalState::Denied => (State::Rejected, "Refused"),
        ApprovalState::Expired => (State::TimedOut, "Expired"),
        ApprovalState::Withdrawn => (State::Canceled, "Withdrawn"),
    };
    let (shape, class, _) = appearance(like);
    html.element("span", &[("class", class)], |html| {
        html.raw(shape).text(word);
    });
}

/// Writes a state: shape, word, colour.
pub fn state(html: &mut Html, state: State) {
    let (shape, class, word) = appearance(state);
    html.element("span", &[("class", class)], |html| {
        html.raw(shape).text(word);
    });
}

/// Writes a point in time with how long ago it was.
pub fn time(html: &mut Html, at: i64, now: i64) {
    let exact = Timestamp(at).to_string();
    html.leaf("time", &[("datetime", &exact), ("title", &exact)], &format!("{} ago", span(now - at)));
}

/// A length of time for people.
pub fn span(ms: i64) -> String {
    let seconds = ms.max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        3_600..172_800 => format!("{}:{:02} h", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Writes a command that does the same in a terminal, with a button that copies it.
pub fn same_command(html: &mut Html, command: &str) {
    html.element("p", &[("class", "row muted")], |html| {
        html.leaf("code", &[], &format!("$ {command}"));
        html.leaf("button", &[("type", "button"), ("data-copy", command)], "Copy");
    });
}

/// Returns a text as one word of a shell; `None` for one with characters that a terminal or a reader takes for something else.
pub fn shell_word(text: &str) -> Option<String> {
    let is_shown = |c: char| !c.is_control() && !nexus_terminal::visible::is_unseen(c);
    text.chars().all(is_shown).then(|| format!("'{}'", text.replace('\'', "'\\''")))
}

/// Writes the bar with the age of the page and the number of new entries. It keeps its place, so that nothing moves.
pub fn news(html: &mut Html, directives: &[DirectiveLine], asked: &[Approval]) {
    let mut source = form_urlencoded::Serializer::new("/news?".to_owned());
    if let Some(latest) = directives.iter().map(|one| one.id.to_string()).max() {
        source.append_pair("directive", &latest);
    }
    if let Some(latest) = asked.iter().map(|one| one.approval_id.to_string()).max() {
        source.append_pair("approval", &latest);
    }
    html.open("p", &[("id", "news"), ("class", "news"), ("data-source", &source.finish())]);
    html.raw(
        "<span id=\"age\" class=\"muted\"></span><button type=\"button\" id=\"show-news\" hidden>Show</button></p>",
    );
}

/// Writes what an empty list says.
pub fn empty(html: &mut Html, sentence: &str, command: Option<&str>) {
    html.element("div", &[("class", "empty")], |html| {
        html.leaf("p", &[], sentence);
        if let Some(command) = command {
            same_command(html, command);
        }
    });
}

/// The first line of a command, cut to what a row has room for.
pub fn short(command: &str) -> String {
    let line = command.lines().next().unwrap_or_default();
    let cut: String = line.chars().take(160).collect();
    if cut.len() < command.len() { cut + " …" } else { cut }
}

/// Writes a list of directives.
pub fn directives(html: &mut Html, caption: &str, directives: &[DirectiveLine], now: i64) {
    html.open("div", &[("class", "scroll")]).open("table", &[("class", "cards")]);
    html.leaf("caption", &[], caption);
    html.raw("<thead><tr><th scope=\"col\">State</th><th scope=\"col\">Directive</th><th scope=\"col\">Command</th>");
    html.raw("<th scope=\"col\">Created</th><th scope=\"col\">Took</th></tr></thead><tbody>");
    for one in directives {
        html.open("tr", &[("data-row", "")]).raw("<td class=\"num\">");
        state(html, one.state);
        // The exit of the command itself is shown by its code, and a success by its state.
        let exit = one.exit_code.filter(|code| *code != 0).map(|code| format!("exit {code}"));
        let reason = one.reason.clone().filter(|reason| reason != "exit").or(exit);
        if let Some(reason) = reason {
            html.leaf("div", &[("class", "muted")], &reason);
        }
        let id = one.id.to_string();
        html.raw("</td><td class=\"num\">");
        let link = [("class", "row-link mono"), ("href", &*format!("/directives/{id}")), ("title", &id)];
        html.leaf("a", &link, id.get(24..).unwrap_or(&id));
        html.raw("</td>").leaf("td", &[("class", "cmd")], &short(&one.command)).raw("<td class=\"num\">");
        time(html, one.created_at, now);
        html.raw("</td>");
        let took = one.started_at.map(|started| span(one.ended_at.unwrap_or(now) - started));
        html.leaf("td", &[("class", "num wide")], took.as_deref().unwrap_or("")).raw("</tr>");
    }
    html.raw("</tbody></table></div>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_for_a_shell_is_one_word_or_none() {
        assert_eq!(shell_word("net a.test:443").as_deref(), Some("'net a.test:443'"));
        assert_eq!(shell_word("a'; rm x #").as_deref(), Some("'a'\\''; rm x #'"));
        for text in ["a\nb", "a\u{1b}[0m", "a\u{202e}b"] {
            assert_eq!(shell_word(text), None, "{text:?}");
        }
    }
}
