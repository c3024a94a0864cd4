//! Reads a layer in stages: first its entries, then the verdict about each entry.
//!
//! ```text
//!  upper directory ─▶ entries ─▶ what each covers ─▶ contents compared ─▶ names of one file
//!                                                                          │
//!                     LayerTree ◀─ databases, git's locks ◀─ verdicts ◀────┘
//! ```
//! The order matters: each stage uses the verdicts of the stages before it.

use crate::beneath::{Doing as _, chmod};
use crate::disk::opened::Notes;
use crate::entries::marks::LayerMode;
use crate::entries::tree::{Inodes, LayerTree, Lower, is_fresh, origin_inode};
use crate::journal::file::INDEX_IN_PART;
use crate::meta::{EntryType, FsTime, stat};
use crate::read::walk::{Walk, WalkError, meta_differs};
use crate::survey::scan::Scanner;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;

impl Walk<'_> {
    /// Reads the whole layer.
    pub(crate) fn read(&self) -> Result<LayerTree, WalkError> {
        let (mut opened, mut notes) = (Vec::new(), Notes::new(self.root));
        let result = self.read_with(&mut opened, &mut notes);
        // Directories that kept us out were opened up for the reading; their recorded modes are the old ones.
        for (path, mode) in opened.iter().rev() {
            let dir = self.upper.dir(path).doing("open", path)?;
            chmod(dir.as_fd(), *mode).doing("set the mode of", path)?;
        }
        notes.close()?;
        result
    }

    fn read_with(&self, opened: &mut Vec<(Vec<u8>, u32)>, notes: &mut Notes<'_>) -> Result<LayerTree, WalkError> {
        let mut nodes = self.collect(opened, notes)?;
        let mut claimed = self.continue_lower(&mut nodes)?;
        self.imply(&mut nodes, &mut claimed)?;
        self.cover(&mut nodes, &claimed)?;
        if self.is_part {
            crate::decide::incomplete::forget_marks(&mut nodes);
        }
        let base_root = stat(self.base.fd(), b"").doing("look at", b"")?;
        let same_mount = base_root.dev == nodes[0].meta.dev && base_root.mount == nodes[0].meta.mount;
        let in_part = self.root.map(|root| root.stat(INDEX_IN_PART.as_bytes())).transpose();
        let is_index_in_part = in_part.doing("look at", INDEX_IN_PART.as_bytes())?.flatten().is_some();
        let top_conflict = self.own_attrs(&mut nodes[0])?;
        let mut tree = LayerTree {
            nodes,
            top_conflict,
            groups: Vec::new(),
            locks: HashMap::new(),
            indexes: Vec::new(),
            inodes: Inodes::default(),
            started: self.started,
            first_other: FsTime::MIN,
            ours: self.ours.to_vec(),
            same_mount,
            mode: self.mode,
            mount: Some(base_root.mount),
            is_each_copy_marked: self.mode == LayerMode::Root && self.index.is_some() && !is_index_in_part,
            takes_last_name: false,
        };
        self.scan(&mut tree, &claimed)?;
        crate::links::hardlink_groups::group(self, &mut tree)?;
        self.classify(&mut tree)?;
        crate::links::link_ends::classify(self, &mut tree)?;
        let bare = crate::git::bare::classify(self, &mut tree)?;
        let mut new = crate::git::nested::classify(self, &mut tree, &bare)?;
        new.extend(crate::git::repository_at_link::hold_back(self, &mut tree)?);
        crate::git::links_between::classify(self, &mut tree, &new)?;
        crate::git::further_trees::classify(self, &mut tree)?;
        crate::git::unmade::classify(self, &mut tree)?;
        crate::git::graphs::hold_back(self, &mut tree, &bare)?;
        crate::git::git_objects::hold_back(self, &mut tree)?;
        crate::git::git_packs::hold_back(
            &crate::git::git_packs::Reading {
                upper: self.upper,
                base: self.base,
                rules: self.rules,
                is_bare: &|path| crate::read::git_dirs::is_one(self.base, path),
                id_lengths: nexus_git::index::lengths::lengths_by,
                comes: crate::git::halves::would_commit,
            },
            &mut tree,
        )?;
        crate::git::closed_directories::classify(self, &mut tree)?;
        crate::git::git_index::classify(self, &mut tree)?;
        crate::git::with_index::classify(self, &mut tree)?;
        crate::git::outside_branches::classify(self, &mut tree)?;
        crate::git::replaced::hold_back(self, &mut tree)?;
        crate::special_files::in_the_way::classify(self.rules, &mut tree);
        crate::special_files::endpoints::hold_back(self.base, &mut tree);
        self.classify_shallow(&mut tree)?;
        crate::git::git_damage::hold_back(self, &mut tree)?;
        crate::git::halves::hold_back(self, &mut tree)?;
        crate::git::packed::hold_back(self.rules, &mut tree);
        crate::links::hardlinks::tie(self, &mut tree)?;
        if self.is_part {
            crate::decide::incomplete::hold(self, &mut tree, &bare)?;
        }
        crate::git::git_lock::find(self, &mut tree)?;
        crate::databases::with_log::hold_back(self, &mut tree)?;
        Ok(tree)
    }

    pub(crate) fn scan(&self, tree: &mut LayerTree, claimed: &HashSet<Vec<u8>>) -> Result<(), WalkError> {
        // The file that an entry covers needs no search.
        let elsewhere = tree.nodes.iter().filter(|node| !node.is_own_version());
        let mut wanted: HashSet<u64> = elsewhere.filter_map(origin_inode).collect();
        wanted.extend(crate::links::hardlink_groups::index_origins(self)?);
        for (at, one) in tree.nodes.iter().enumerate() {
            if let Some(found) = one.covers.as_ref().filter(|found| found.meta.kind != EntryType::Directory)
                && wanted.contains(&found.meta.id.ino)
            {
                tree.inodes.cover(found.meta.id.ino, at);
            }
        }
        wanted.retain(|ino| !tree.inodes.has(*ino));
        let scanner = Scanner {
            base: self.base,
            rules: self.rules,
            started: self.started,
            ours: self.ours,
            claimed,
            wanted: &wanted,
            budget: crate::survey::scan::Budget::default(),
            ends: crate::links::link_ends::Ends::new(self.rules, self.base.path()),
            links: crate::links::link_budget::Links::new(|path| crate::links::link_ends::link(self.base, path)),
        };
        for one in &mut tree.nodes {
            let whole = match (&one.rare.lower, &one.covers) {
                (Lower::Moved(found), _) => Some((found, one.path.0.clone())),
                (_, Some(found)) if found.meta.kind == EntryType::Directory && !one.claimed => {
                    Some((found, one.path.0.clone()))
                }
                _ => None,
            };
            if let Some((found, place)) = whole {
                let moves = matches!(&one.rare.lower, Lower::Moved(_));
                let mut scan = scanner.scan(found, &place, moves, &mut tree.inodes)?;
                // The attributes that the run gave it would take the place of others.
                if moves
                    && is_fresh(self.started, self.ours, &found.at, &found.meta)
                    && (meta_differs(&one.meta, &found.meta) || one.rare.attrs != one.rare.base_attrs)
                {
                    scan.changed.push(found.at.text());
                }
                one.rare.scan = Some(scan);
            }
            // A moved directory may also cover another one that goes away.
            if let (Lower::Moved(_), Some(found), false) = (&one.rare.lower, &one.covers, one.claimed)
                && found.meta.kind == EntryType::Directory
            {
                let more = scanner.scan(found, &one.path.0, false, &mut tree.inodes)?;
                if let Some(scan) = &mut one.rare.scan {
                    scan.changed.extend(more.changed);
                    scan.protected = scan.protected.take().or(more.protected);
                    scan.holds.extend(more.holds);
                }
            }
        }
        for found in tree.nodes.iter().filter_map(|node| node.covers.as_ref()) {
            tree.inodes.name(&found.meta);
        }
        tree.takes_last_name = tree.inodes.takes_last_name();
        Ok(())
    }
}
