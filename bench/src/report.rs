//! The figures, what they are held against, and how they are shown.

use crate::machine::Facts;
use crate::options::P;
use serde::Serialize;

/// A figure is good when it is at most, or at least, its bound.
#[derive(Debug, Clone, Copy, Serialize)]
pub enum Bound {
    /// A time or a size.
    AtMost(f64),
    /// The value must be at least this rate.
    AtLeast(f64),
}

/// One line of the verdict.
#[derive(Debug, Serialize)]
pub struct Verdict {
    /// `P1` and so on.
    pub row: &'static str,
    /// Name of the measure.
    pub what: String,
    /// The measured thing itself, such as `4.31 ms`.
    pub figure: String,
    /// Value that is compared with the bound.
    pub value: Option<f64>,
    /// The unit of value and bound, such as `x bwrap`.
    pub unit: &'static str,
    /// Bound of the target.
    pub bound: Bound,
    /// Reason for which there is no value.
    pub missing: Option<String>,
}

impl Verdict {
    /// Returns whether the target is reached; `None` without a value.
    pub fn reached(&self) -> Option<bool> {
        let value = self.value?;
        Some(match self.bound {
            Bound::AtMost(bound) => value <= bound,
            Bound::AtLeast(bound) => value >= bound,
        })
    }

    fn cells(&self) -> Vec<String> {
        let target = match self.bound {
            Bound::AtMost(bound) => format!("<= {bound} {}", self.unit),
            Bound::AtLeast(bound) => format!(">= {bound} {}", self.unit),
        };
        let value = self.value.map_or("-".to_owned(), |value| format!("{value:.2} {}", self.unit));
        let reached = match self.reached() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "not measured",
        };
        vec![self.row.to_owned(), self.what.clone(), self.figure.clone(), value, target, reached.to_owned()]
    }
}

/// Figures beside each other.
#[derive(Debug, Serialize)]
pub struct Table {
    /// Title of the table.
    pub title: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// Rows of the table.
    pub rows: Vec<Vec<String>>,
}

/// All that one benchmark found.
#[derive(Debug, Serialize)]
pub struct Report {
    schema: &'static str,
    facts: Facts,
    command: String,
    /// Processor time that others took, measured again at the end.
    load_at_end: String,
    verdicts: Vec<Verdict>,
    tables: Vec<Table>,
    notes: Vec<String>,
}

impl Report {
    /// An empty one.
    pub fn new(facts: Facts, reported: Vec<String>) -> Self {
        let command = ["cargo xtask bench".to_owned()].into_iter().chain(reported).collect::<Vec<_>>().join(" ");
        Self {
            schema: "nexus.bench/1",
            facts,
            command,
            load_at_end: String::new(),
            verdicts: Vec::new(),
            tables: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds a figure with its target.
    pub fn evaluate(&mut self, row: P, what: &str, figure: String, value: f64, unit: &'static str, bound: Bound) {
        self.hold(row, what, Ok((figure, value)), unit, bound);
    }

    /// Adds a figure with its target, or the reason why there is none. That is shown too, so that no reader takes its
    /// absence for success.
    pub fn hold(&mut self, row: P, what: &str, found: Result<(String, f64), String>, unit: &'static str, bound: Bound) {
        let (row, what) = (row.name(), what.to_owned());
        let (figure, value, missing) = match found {
            Ok((figure, value)) => (figure, Some(value), None),
            Err(why) => ("-".to_owned(), None, Some(why)),
        };
        self.verdicts.push(Verdict { row, what, figure, value, unit, bound, missing });
    }

    /// Adds figures, if there are any.
    pub fn table(&mut self, title: &str, head: &[&str], rows: Vec<Vec<String>>) {
        if rows.is_empty() {
            return;
        }
        let head = head.iter().map(|&name| name.to_owned()).collect();
        self.tables.push(Table { title: title.to_owned(), head, rows });
    }

    /// Adds a remark.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// After the last figure.
    pub fn finish(&mut self) {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        load.split(' ').next().unwrap_or_default().clone_into(&mut self.load_at_end);
        for verdict in &self.verdicts {
            if let Some(why) = &verdict.missing {
                let text = format!("{} {}: not measured: {why}", verdict.row, verdict.what);
                if !self.notes.contains(&text) {
                    self.notes.push(text);
                }
            }
        }
    }

    fn verdict_table(&self) -> Table {
        let head = ["", "measure", "figure", "ratio", "target", "reached"].map(str::to_owned).to_vec();
        let rows = self.verdicts.iter().map(Verdict::cells).collect();
        Table { title: "Targets".to_owned(), head, rows }
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut lines = vec![self.facts.line(), format!("{}; load at the end {}", self.command, self.load_at_end)];
        lines.extend(self.tables.iter().chain([&self.verdict_table()]).map(aligned));
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines.join("\n") + "\n"
    }

    /// Returns the report as Markdown for `docs/performance.md`.
    pub fn markdown(&self) -> String {
        let mut lines =
            vec![format!("{}; `{}`; load at the end {}", self.facts.line(), self.command, self.load_at_end)];
        for table in self.tables.iter().chain([&self.verdict_table()]) {
            let rule = "---|".repeat(table.head.len());
            lines.push(format!("\n{}\n\n| {} |\n|{rule}", table.title, table.head.join(" | ")));
            lines.extend(table.rows.iter().map(|row| format!("| {} |", row.join(" | "))));
        }
        lines.push(String::new());
        lines.extend(self.notes.iter().map(|note| format!("* {note}")));
        lines.join("\n") + "\n"
    }

    /// Returns the report as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

fn aligned(table: &Table) -> String {
    let width = |column: usize| {
        let cells = table.rows.iter().chain([&table.head]).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut lines = vec![format!("\n{}", table.title)];
    for row in [&table.head].into_iter().chain(&table.rows) {
        let cells = row.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column)));
        lines.push(format!("  {}", cells.collect::<Vec<_>>().join("  ").trim_end()));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(value: Option<f64>, bound: Bound) -> Verdict {
        let (what, figure) = ("x".to_owned(), "1 ms".to_owned());
        Verdict { row: "P1", what, figure, value, unit: "x bwrap", bound, missing: None }
    }

    #[test]
    fn a_time_is_reached_at_its_bound_and_not_above() {
        assert_eq!(verdict(Some(0.9), Bound::AtMost(0.9)).reached(), Some(true));
        assert_eq!(verdict(Some(0.91), Bound::AtMost(0.9)).reached(), Some(false));
    }

    #[test]
    fn a_rate_is_reached_at_its_bound_and_not_below() {
        assert_eq!(verdict(Some(1.9), Bound::AtLeast(1.9)).reached(), Some(true));
        assert_eq!(verdict(Some(1.8), Bound::AtLeast(1.9)).reached(), Some(false));
    }

    #[test]
    fn what_was_not_measured_is_neither_reached_nor_missed() {
        assert_eq!(verdict(None, Bound::AtMost(1.0)).reached(), None);
        assert!(verdict(None, Bound::AtMost(1.0)).cells().contains(&"not measured".to_owned()));
        // Without a number there is no success: a figure that cannot be computed must not pass.
        assert_eq!(verdict(Some(f64::NAN), Bound::AtMost(1.0)).reached(), Some(false));
    }

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let rows = vec![vec!["long name".to_owned(), "1".to_owned()]];
        let table = Table { title: "T".to_owned(), head: vec!["a".to_owned(), "b".to_owned()], rows };
        assert_eq!(aligned(&table), "\nT\n  a          b\n  long name  1");
    }
}
