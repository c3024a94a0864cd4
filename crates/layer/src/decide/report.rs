//! The lines of a report. A line is made when it is needed: a layer may have hundreds of thousands of them. Pure.

use crate::entries::changes::{Change, ChangeKind};
use crate::entries::protected::Rules;
use crate::entries::tree::{Group, LayerTree};
use crate::entries::verdict::{change, is_nothing, stripped};
use serde::{Serialize, Serializer};

/// The subject of one line, and its role in the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Row {
    /// A node with the reason to hold it back, if there is one.
    Node(u32),
    /// A node that is committed.
    Accepted(u32),
    /// A node that is committed in part; the rest of it waits.
    Stripped(u32),
    /// A group of which the layer has no name.
    Group(u32),
    /// A group of which the layer has no name, and that is committed.
    AcceptedGroup(u32),
}

/// A list of changes, ordered by path.
#[derive(Debug)]
pub(crate) enum Report {
    /// To be made from the tree.
    Rows(Vec<Row>),
    /// Lines that are made already.
    Lines(Vec<Change>),
}

impl Default for Report {
    fn default() -> Self {
        Self::Rows(Vec::new())
    }
}

impl Report {
    /// Everything that differs.
    pub(crate) fn everything(tree: &LayerTree) -> Self {
        let nodes = tree.nodes.iter().enumerate().filter(|(_, node)| !is_nothing(tree, node));
        let mut rows: Vec<Row> = nodes.map(|(at, _)| Row::Node(number(at))).collect();
        rows.extend(index_only(tree).map(|(group, _)| Row::Group(number(group))));
        Self::ordered(tree, rows)
    }

    /// These rows, ordered by path.
    pub(crate) fn ordered(tree: &LayerTree, mut rows: Vec<Row>) -> Self {
        rows.sort_unstable_by(|a, b| path(tree, *a).cmp(path(tree, *b)));
        Self::Rows(rows)
    }

    /// Returns the number of lines.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.len(),
            Self::Lines(lines) => lines.len(),
        }
    }

    /// The lines. `tree` and `rules` are those that the rows were made with.
    pub(crate) fn lines<'a>(&'a self, tree: &'a LayerTree, rules: &'a Rules) -> Box<dyn Iterator<Item = Change> + 'a> {
        match self {
            Self::Rows(rows) => Box::new(rows.iter().filter_map(|row| line(tree, rules, *row))),
            Self::Lines(lines) => Box::new(lines.iter().cloned()),
        }
    }

    /// The lines in a form that is written one by one.
    pub(crate) fn written<'a>(&'a self, tree: &'a LayerTree, rules: &'a Rules) -> impl Serialize + 'a {
        Written { report: self, tree, rules }
    }
}

/// A node or a group by number. A layer has fewer than 2^32 entries: each takes more than a byte of memory.
pub(crate) fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

struct Written<'a> {
    report: &'a Report,
    tree: &'a LayerTree,
    rules: &'a Rules,
}

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.report.lines(self.tree, self.rules))
    }
}

fn path(tree: &LayerTree, row: Row) -> &[u8] {
    match row {
        Row::Node(at) | Row::Accepted(at) | Row::Stripped(at) => &tree.nodes[at as usize].path.0,
        Row::Group(number) | Row::AcceptedGroup(number) => {
            tree.groups[number as usize].anchor.as_ref().map_or(&[], |anchor| &anchor.at.0)
        }
    }
}

fn line(tree: &LayerTree, rules: &Rules, row: Row) -> Option<Change> {
    let of = |at: u32| change(tree, &tree.nodes[at as usize], rules);
    Some(match row {
        Row::Node(at) => of(at),
        Row::Accepted(at) => Change { protected: None, ..of(at) },
        Row::Stripped(at) => {
            let class = rules.class(&tree.nodes[at as usize].path.0);
            Change { protected: Some(stripped(&class).to_owned()), ..of(at) }
        }
        Row::Group(number) => group(&tree.groups[number as usize])?,
        Row::AcceptedGroup(number) => Change { protected: None, ..group(&tree.groups[number as usize])? },
    })
}

/// Files that changed through names that are gone again; what is left are names that the layer does not contain.
pub(crate) fn index_only(tree: &LayerTree) -> impl Iterator<Item = (usize, Change)> {
    let groups = tree.groups.iter().enumerate().filter(|(_, group)| group.members.is_empty() && !group.same);
    groups.filter_map(|(number, one)| group(one).map(|change| (number, change)))
}

fn group(group: &Group) -> Option<Change> {
    let anchor = group.anchor.as_ref()?;
    Some(Change {
        path: anchor.at.text(),
        kind: ChangeKind::Modified,
        file_type: group.meta.kind,
        size: group.meta.size,
        mode: group.meta.mode,
        protected: group.tie.reason().map(str::to_owned),
        setuid: false,
        new_executable: false,
        hook: false,
        skipped: false,
        by_content: false,
    })
}
