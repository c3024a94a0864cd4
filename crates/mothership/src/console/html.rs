//! Markup by construction: what a program writes is markup, and every value is text.
//!
//! [`Html`] takes markup as `&'static str` alone, so that no value of a user, a daemon or a sandbox can become markup: a text that
//! was made while the program ran does not fit. Values go through [`Html::text`] and through attributes, which escape them and
//! write characters that no reader can see as `<U+202E>`.

use nexus_terminal::visible::is_unseen;
use std::fmt::Write as _;

/// A piece of a page.
#[derive(Debug, Clone, Default)]
pub struct Html(String);

/// An attribute: its name, and a value that is escaped.
pub type Attribute<'a> = (&'static str, &'a str);

impl Html {
    /// Adds markup that stands in the program.
    pub fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Adds text, escaped.
    pub fn text(&mut self, text: &str) -> &mut Self {
        escape(&mut self.0, text);
        self
    }

    /// Adds a piece that was made before.
    pub fn add(&mut self, piece: &Self) -> &mut Self {
        self.0.push_str(&piece.0);
        self
    }

    /// Adds the beginning of an element. An attribute that is only there or not has an empty value.
    pub fn open(&mut self, tag: &'static str, attributes: &[Attribute<'_>]) -> &mut Self {
        self.0.push('<');
        self.0.push_str(tag);
        for (name, value) in attributes {
            self.0.push(' ');
            self.0.push_str(name);
            self.0.push_str("=\"");
            escape(&mut self.0, value);
            self.0.push('"');
        }
        self.0.push('>');
        self
    }

    /// Adds the end of an element.
    pub fn close(&mut self, tag: &'static str) -> &mut Self {
        self.0.push_str("</");
        self.0.push_str(tag);
        self.0.push('>');
        self
    }

    /// Adds an element with what `content` writes into it.
    pub fn element(
        &mut self,
        tag: &'static str,
        attributes: &[Attribute<'_>],
        content: impl FnOnce(&mut Self),
    ) -> &mut Self {
        self.open(tag, attributes);
        content(self);
        self.close(tag)
    }

    /// Adds an element that holds text.
    pub fn leaf(&mut self, tag: &'static str, attributes: &[Attribute<'_>], text: &str) -> &mut Self {
        self.element(tag, attributes, |html| {
            html.text(text);
        })
    }

    /// Returns the markup.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }

    #[cfg(test)]
    pub fn markup(&self) -> &str {
        &self.0
    }
}

fn escape(out: &mut String, text: &str) {
    // Most of a page are runs of characters that stay as they are.
    let is_plain = |c: char| matches!(c, ' '..='~') && !matches!(c, '<' | '>' | '&' | '"' | '\'');
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| !is_plain(c)) {
        let (plain, from) = rest.split_at(at);
        out.push_str(plain);
        let mut others = from.chars();
        let Some(c) = others.next() else { break };
        rest = others.as_str();
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if is_unseen(c) => drop(write!(out, "&lt;U+{:04X}&gt;", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_becomes_markup_and_no_character_hides() {
        let mut html = Html::default();
        html.leaf(
            "p",
            &[("title", "\" onclick='x' <b>")],
            "<script>alert(1)</script>&amp;\u{202e}\u{0}\u{1b}[31m\u{200b}",
        );
        assert_eq!(
            html.markup(),
            "<p title=\"&quot; onclick=&#39;x&#39; &lt;b&gt;\">&lt;script&gt;alert(1)&lt;/script&gt;&amp;amp;&lt;U+202E&gt;&lt;U+0000&gt;&lt;U+001B&gt;[31m&lt;U+200B&gt;</p>"
        );
    }

    #[test]
    fn letters_of_every_script_and_lines_stay() {
        let mut html = Html::default();
        html.text("größe שלום 日本語 🙂\ta\nb");
        assert_eq!(html.markup(), "größe שלום 日本語 🙂\ta\nb");
    }
}
