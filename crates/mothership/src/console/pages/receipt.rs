//! The receipt of a directive: who signed it, and what it says was tried and held.

use super::parts;
use crate::console::html::Html;
use crate::console::visit::Visit;
use crate::http::Problem;
use nexus_api::base64;
use nexus_api::mothership::Directive;
use serde_json::Value;

/// Writes the receipt.
pub async fn write(visit: &Visit, one: &Directive, html: &mut Html) -> Result<(), Problem> {
    if !one.has_receipt {
        let over = one.state.is_terminal();
        let sentence = if over { "No receipt was reported." } else { "The receipt comes when the directive ends." };
        parts::empty(html, sentence, None);
        return Ok(());
    }
    let text = visit.context.app.store.receipt(visit.account, one.directive_id, None).await?;
    let envelope: Value = serde_json::from_str(&text).unwrap_or_default();
    let payload = envelope["payload"].as_str().and_then(base64::decode);
    let signed: Option<Value> = payload.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let key = envelope["signatures"][0]["keyid"].as_str().unwrap_or("no key that it names");
    html.raw("<p class=\"bar\"><strong class=\"s-wait\">Not verified here</strong><span>signed by ");
    html.leaf("code", &[("id", "key")], key);
    html.raw("</span><span class=\"muted\">This server has no keys of territories: nexus receipt verify checks it with them.</span></p>");
    if let Some(signed) = &signed {
        facts(html, signed);
        proof(html, signed);
    }
    html.raw("<details class=\"file\"><summary>The whole receipt</summary>");
    let whole = signed.as_ref().unwrap_or(&envelope);
    let pretty = serde_json::to_string_pretty(whole).unwrap_or_default();
    let attributes = [("class", "untrusted"), ("tabindex", "0"), ("aria-label", "Receipt")];
    html.leaf("pre", &attributes, &pretty).raw("</details>");
    parts::same_command(html, &format!("nexus directive receipt {}", one.directive_id));
    Ok(())
}

/// Returns a value as people read it.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn facts(html: &mut Html, signed: &Value) {
    html.raw("<dl>");
    let names = signed["guarantees"].as_array().map(Vec::as_slice).unwrap_or_default();
    let guarantees: Vec<String> = names.iter().map(plain).collect();
    let all = [
        ("Run", plain(&signed["run_id"])),
        ("Isolation", format!("{} {}", plain(&signed["driver"]["name"]), plain(&signed["driver"]["version"]))),
        ("Kernel", plain(&signed["kernel"])),
        ("Exit", plain(&signed["exit"])),
        ("Changes", plain(&signed["changes"]["outcome"])),
        ("Guarantees", guarantees.join(", ")),
    ];
    for (term, value) in all {
        html.leaf("dt", &[], term).leaf("dd", &[], &value);
    }
    html.raw("</dl>");
}

/// Writes what the confined process tried before its command, and what answer it got.
fn proof(html: &mut Html, signed: &Value) {
    let rows = signed["proof"].as_array().map(Vec::as_slice).unwrap_or_default();
    let holds = |row: &Value| {
        let seen = row["seen"].as_str().unwrap_or_default();
        row["expected"].as_str().is_some_and(|expected| expected.split('|').any(|one| one == seen))
    };
    let held = rows.iter().filter(|row| holds(row)).count();
    html.open("div", &[("class", "scroll")]).open("table", &[("class", "cards"), ("id", "proof")]);
    html.leaf(
        "caption",
        &[],
        &format!("Proof: {held} of {} attempts to break out were refused as they had to be", rows.len()),
    );
    html.raw("<thead><tr><th scope=\"col\">Attempt</th><th scope=\"col\">Expected</th><th scope=\"col\">Seen</th>");
    html.raw("<th scope=\"col\">Result</th></tr></thead><tbody>");
    for row in rows {
        html.raw("<tr>").leaf("td", &[("class", "cmd")], &plain(&row["check"]));
        html.leaf("td", &[("class", "cmd")], &plain(&row["expected"]));
        html.leaf("td", &[("class", "cmd")], &plain(&row["seen"])).raw("<td class=\"num\">");
        let (class, word) = if holds(row) { ("state s-ok", "+ holds") } else { ("state s-bad", "× does not hold") };
        html.leaf("span", &[("class", class)], word).raw("</td></tr>");
    }
    html.raw("</tbody></table></div>");
}
