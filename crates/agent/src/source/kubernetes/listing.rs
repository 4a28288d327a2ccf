//! The list of all objects of a kind, as far as it was read: a page that fails is asked for again, and none before it.
//! Otherwise an API server that has too much to do would be asked for more with each failure.

use std::collections::BTreeMap;

use super::api::{Page, Part};
use super::kind::{Kind, Object};

/// The most pages' worth of objects that are asked for at once, which is some 20 MB of text.
const CACHED_PAGES_MAX: usize = 20;

/// So often in a row the next page is asked for again, and then the first one. What is refused may be the token, which
/// another API server does not take, or whose version a store that was put back does not know.
const REFUSALS_MAX: u32 = 3;

/// What a list is to have that is made in the place of an earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    /// The version up to which all was known: the list must not be older.
    pub(super) version: String,
    /// How many objects there were.
    pub(super) objects: usize,
    /// An API server has not known the version.
    pub(super) is_doubted: bool,
}

/// A list that is being read.
#[derive(Debug)]
pub(super) struct Listing<K> {
    /// What is kept of them, by their names.
    pub(super) all: Vec<(String, K)>,
    /// Why some cannot be read.
    pub(super) unread: BTreeMap<String, String>,
    /// How many were read.
    pub(super) objects: usize,
    /// Where the next page begins.
    token: String,
    /// How often that page was refused.
    refusals: u32,
}

impl<K> Default for Listing<K> {
    fn default() -> Listing<K> {
        Listing { all: Vec::new(), unread: BTreeMap::new(), objects: 0, token: String::new(), refusals: 0 }
    }
}

impl<K> Listing<K> {
    /// What is to be asked for next. What is not older than an earlier list does not go back in time, so that it may
    /// come from a cache: an API server that begins again is asked by all nodes at once.
    pub(super) fn next<'a, R: Kind>(&'a self, known: Option<&'a Known>) -> Part<'a> {
        let is_small = |known: &&Known| known.objects <= CACHED_PAGES_MAX * R::PAGE as usize;
        match known.filter(is_small) {
            Some(known) if self.token.is_empty() => Part::NotOlderThan(&known.version),
            _ => Part::Page(&self.token),
        }
    }

    /// Takes a page in. The version of the list, if that was the last one.
    pub(super) fn take<R>(
        &mut self,
        page: Page<R>,
        keep: impl Fn(Object<R>) -> Result<Option<K>, String>,
    ) -> Option<String> {
        self.objects += page.items.len();
        self.refusals = 0;
        // What is kept of an object is a small part of it.
        for object in page.items {
            let name = object.name.clone();
            match keep(object) {
                Ok(kept) => self.all.extend(kept.map(|kept| (name, kept))),
                Err(why) => drop(self.unread.insert(name, why)),
            }
        }
        self.token = page.metadata.next;
        self.token.is_empty().then_some(page.metadata.resource_version)
    }

    /// The next page was refused.
    pub(super) fn note_refusal(&mut self) {
        self.refusals += 1;
        if self.refusals == REFUSALS_MAX {
            *self = Listing::default();
        }
    }
}
