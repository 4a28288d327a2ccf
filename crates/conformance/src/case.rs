//! A case: a sentence of the specification, and the function that judges a plugin by it.

use cni::Version;
use serde::Serialize;

use crate::outcome::Judged;
use crate::scene::Scene;

/// A sentence of the specification, and how a plugin is judged by it.
#[derive(Debug)]
pub struct Case {
    /// Its name on the command line: `del-twice`. It begins with the verb or the part that it is about.
    pub id: &'static str,
    /// What a plugin does that passes, in a few words.
    pub title: &'static str,
    /// Where the sentence stands: "section 2, DEL".
    pub section: &'static str,
    /// The sentence, as it stands in the specification.
    pub sentence: &'static str,
    /// How strongly the sentence puts it.
    pub demand: Demand,
    /// The least version of the protocol that a plugin must speak for the case to apply.
    pub since: Version,
    /// Which plugins it is about.
    pub(crate) kind: Kind,
    /// Judges the scene's plugin.
    pub(crate) judge: fn(&Scene<'_>) -> Judged,
}

/// How strongly a sentence demands something (RFC 2119).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Demand {
    /// "must", "required", or what a format or a code means.
    Must,
    /// "should" or "recommended": a plugin that does otherwise may have a reason.
    Should,
}

/// Which plugins a case is about (section 2, "Overview").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All plugins, those behind another one too.
    Any,
    /// Those that create the interface, and not those that are called behind them.
    Interface,
}

impl Case {
    /// A sentence that every plugin has to keep, of whichever version.
    pub(crate) const fn must(
        id: &'static str,
        title: &'static str,
        section: &'static str,
        sentence: &'static str,
        judge: fn(&Scene<'_>) -> Judged,
    ) -> Case {
        let (demand, since, kind) = (Demand::Must, Version::V0_3_0, Kind::Any);
        Case { id, title, section, sentence, demand, since, kind, judge }
    }
}

impl Demand {
    /// The word of the specification.
    pub fn word(self) -> &'static str {
        match self {
            Demand::Must => "must",
            Demand::Should => "should",
        }
    }
}
