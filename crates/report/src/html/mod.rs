//! The page of a race, or of a search for settings: one self-contained HTML file, for readers who have to rely on it.
//!
//! Every plotted figure is also in a table, colour is never the only mark, and the page is complete without its
//! script. All text of a record is escaped, wherever it appears.

mod again;
mod by_cpu;
mod capacity;
mod card_counts;
mod cpu;
mod curve;
mod departure;
mod details;
mod exact;
#[cfg(test)]
mod fixture;
mod flame;
mod head;
mod late;
mod machine;
#[cfg(test)]
mod made_late;
mod map;
mod marks;
mod markup;
mod method;
mod profile;
mod published;
mod ratio;
mod rows;
#[cfg(test)]
mod sampled;
mod scale;
mod search;
mod streams;
mod svg;
mod sweep;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod timeline;
mod topology;

use crate::{PairsMap, Summary, carried};
use markup::Markup;
use record::{Measure, SearchRecord};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("page.js");
const FLAME_STYLE: &str = include_str!("flame.css");
const FLAME_SCRIPT: &str = include_str!("flame.js");

/// The page of a summary as the text of an HTML file.
pub fn page(summary: &Summary) -> String {
    let sampled = !summary.profiles.is_empty();
    let flame = |source: &'static str| if sampled { source } else { "" };
    let sources = Sources { style: flame(FLAME_STYLE), script: flame(FLAME_SCRIPT) };
    whole(&summary.experiment.name, sources, |m| body(m, summary))
}

/// The page of a search for settings, likewise.
pub fn search_page(search: &SearchRecord) -> String {
    whole(&search::title(search), Sources { style: "", script: "" }, |m| search::body(m, search))
}

/// The page of a race of all pairs, likewise. `page` leads from a client's and a server's node to the page of their
/// race, if it has one.
pub fn map_page(map: &PairsMap, page: &dyn Fn(&str, &str) -> Option<String>) -> String {
    whole(&map.experiment, Sources { style: "", script: "" }, |m| map::body(m, map, page))
}

/// The sources of a page besides the common ones.
#[derive(Clone, Copy)]
struct Sources {
    style: &'static str,
    script: &'static str,
}

fn whole(title: &str, sources: Sources, fill: impl FnOnce(&mut Markup)) -> String {
    let mut m = Markup::new();
    m.source("<!DOCTYPE html>\n");
    m.within("html", &[("lang", "en")], |m| {
        m.within("head", &[], |m| head(m, title, sources.style));
        m.within("body", &[], |m| {
            m.within("main", &[], fill);
            m.within("script", &[], |m| {
                m.source(SCRIPT);
                m.source(sources.script);
            });
        });
    });
    let mut text = m.into_string();
    text.push('\n');
    text
}

fn head(m: &mut Markup, title: &str, style: &'static str) {
    m.empty("meta", &[("charset", "utf-8")]);
    m.empty("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
    m.empty("meta", &[("name", "color-scheme"), ("content", "light dark")]);
    // The page loads no resources; this enforces it even if a text of a record should ever slip through.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";
    m.empty("meta", &[("http-equiv", "Content-Security-Policy"), ("content", policy)]);
    m.leaf("title", &[], &format!("{title} · hostgap"));
    m.within("style", &[], |m| {
        m.source(STYLE);
        m.source(style);
    });
}

fn body(m: &mut Markup, summary: &Summary) {
    head::section(m, summary);
    published::section(m, summary);
    sweep::section(m, summary);
    let times = carried::measure(summary) == Measure::Latency;
    if !summary.exact.is_empty() {
        exact::section(m, summary);
    } else if times {
        ratio::section(m, summary);
        curve::section(m, summary);
        cpu::section(m, summary);
        capacity::section(m, summary);
    } else {
        ratio::section(m, summary);
        // Of packets the section before is about nothing else.
        if carried::measure(summary) != Measure::Frames {
            cpu::section(m, summary);
        }
    }
    card_counts::section(m, summary);
    late::section(m, summary);
    profile::section(m, summary);
    timeline::section(m, summary);
    topology::section(m, summary);
    details::section(m, summary);
    machine::section(m, summary);
    method::section(m, summary);
    again::section(m, summary);
}
