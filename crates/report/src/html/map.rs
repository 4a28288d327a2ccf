//! The page of a race of all pairs: a matrix for each path, coloured by ratio, with each figure's interval as text;
//! what is worse than the rest; and how pairs were compared.

use record::NodeInZone;

use super::markup::Markup;
use super::text;
use crate::analyse::named;
use crate::pairs::{PairFigure, PairsMap, PathMap};
use crate::{Ratio, figures};

/// The steps of colour: from these ratios on, either way.
const STEPS: [f64; 3] = [1.05, 1.15, 1.4];

/// Writes all that stands in the page.
pub(super) fn body(m: &mut Markup, map: &PairsMap, page: &dyn Fn(&str, &str) -> Option<String>) {
    head(m, map);
    findings(m, map);
    m.within("section", &[("id", "map")], |m| {
        m.leaf("h2", &[], "Map");
        if let Some(load) = &map.load {
            let lead = format!(
                "{} at {}, of each pair ÷ the median of the other pairs, with the 95 % interval; below it the pair's own \
                 figure, and how often its own host's that is. Columns are the clients' nodes, rows the servers'. ▲ is worse \
                 and ▼ better than the other pairs beyond noise and luck. Colours say what a ratio is at least, by the end of \
                 its interval.",
                map.statistic,
                text::load(load)
            );
            m.leaf("p", &[("class", "lead")], &lead);
        }
        legend(m);
        map.paths.iter().for_each(|path| matrix(m, map, path, page));
    });
    left_out(m, map);
    method(m, map);
}

fn head(m: &mut Markup, map: &PairsMap) {
    m.within("header", &[], |m| {
        m.leaf("h1", &[], &format!("{}: all pairs of {} nodes", map.experiment, map.nodes.len()));
        let place = format!("{} · hostgap {}", text::date(map.started_unix_s), map.hostgap);
        m.leaf("p", &[("class", "where")], &place);
        m.leaf("p", &[("class", "verdict-sentence")], &map.verdict);
        if !map.notes.is_empty() {
            m.within("ul", &[("class", "warnings")], |m| {
                map.notes.iter().for_each(|note| m.leaf("li", &[], note));
            });
        }
    });
}

fn findings(m: &mut Markup, map: &PairsMap) {
    if map.findings.is_empty() {
        return;
    }
    m.within("section", &[("id", "findings")], |m| {
        m.leaf("h2", &[], "Worse than the rest");
        m.within("ul", &[], |m| {
            map.findings.iter().for_each(|finding| m.leaf("li", &[], &finding.sentence));
        });
    });
}

fn legend(m: &mut Markup) {
    m.within("p", &[("class", "legend")], |m| {
        let worse = STEPS.iter().zip(["m-w1", "m-w2", "m-w3"]);
        let better = STEPS.iter().zip(["m-b1", "m-b2", "m-b3"]);
        let steps = better.rev().map(|(step, class)| (class, format!("better by ×{step} at least")));
        let steps = steps.chain(worse.map(|(step, class)| (class, format!("worse by ×{step} at least"))));
        for (class, text) in steps {
            m.within("span", &[], |m| {
                m.leaf("i", &[("class", class)], "");
                m.text(&text);
            });
        }
    });
}

fn matrix(m: &mut Markup, map: &PairsMap, path: &PathMap, page: &dyn Fn(&str, &str) -> Option<String>) {
    let caption = match path.median {
        Some(median) => format!("{}: median of all pairs {}", path.name, own(map, median)),
        None => format!("{}: no figure", path.name),
    };
    m.leaf("h3", &[], &path.name);
    let frame =
        [("class", "scroll"), ("tabindex", "0"), ("role", "region"), ("aria-label", caption.as_str())];
    m.within("div", &frame, |m| {
        m.within("table", &[("class", "matrix")], |m| {
            m.leaf("caption", &[], &caption);
            m.within("thead", &[], |m| {
                m.within("tr", &[], |m| {
                    m.leaf("th", &[("scope", "col")], "server \\ client");
                    map.nodes.iter().for_each(|node| m.leaf("th", &[("scope", "col")], &named(node)));
                });
            });
            m.within("tbody", &[], |m| {
                for server in &map.nodes {
                    m.within("tr", &[], |m| {
                        m.leaf("th", &[("scope", "row")], &named(server));
                        map.nodes.iter().for_each(|client| cell(m, map, path, (client, server), page));
                    });
                }
            });
        });
    });
}

fn cell(
    m: &mut Markup,
    map: &PairsMap,
    path: &PathMap,
    (client, server): (&NodeInZone, &NodeInZone),
    page: &dyn Fn(&str, &str) -> Option<String>,
) {
    if client == server {
        return m.leaf("td", &[("class", "m-self")], "·");
    }
    let found = path.pairs.iter().find(|pair| pair.client == client.node && pair.server == server.node);
    let Some(found) = found else { return m.leaf("td", &[], text::NONE) };
    m.within("td", &[("class", class(map, found))], |m| {
        let ratio = ratio(map, found);
        match page(&client.node, &server.node) {
            Some(page) => m.leaf("a", &[("href", &page)], &ratio),
            None => m.text(&ratio),
        }
        let mut below = found.figure.map(|figure| own(map, figure)).unwrap_or_default();
        if let Some(Ratio { value, .. }) = found.over_host.as_ref() {
            below += &format!(", {}× host", figures::trimmed(*value, 2));
        }
        m.leaf("small", &[], &below);
    });
}

/// "1.45 (1.30–1.62) ▲", or why there is none.
fn ratio(map: &PairsMap, pair: &PairFigure) -> String {
    let mark = pair.mark(map.statistic);
    match (&pair.over_others, &pair.unmet) {
        (Some(of), _) => format!("{}{mark}", text::ratio(of)),
        (None, Some(_)) => "did not race".to_owned(),
        (None, None) if pair.is_by_unanswered(map.statistic) => format!("requests unanswered{mark}"),
        (None, None) => "not known".to_owned(),
    }
}

/// The colour of a ratio: of that end of its interval that is nearer to 1, so that noise has none.
fn class(map: &PairsMap, pair: &PairFigure) -> &'static str {
    let Some(of) = &pair.over_others else { return "" };
    let (above, below) = (of.low, of.high.recip());
    let (worse, better) = if map.unit == "ns" { (above, below) } else { (below, above) };
    let steps = |ratio: f64| STEPS.iter().filter(|step| ratio >= **step).count();
    match (steps(worse), steps(better)) {
        (0, better) => ["", "m-b1", "m-b2", "m-b3"][better],
        (worse, _) => ["", "m-w1", "m-w2", "m-w3"][worse],
    }
}

/// A figure in its unit.
fn own(map: &PairsMap, value: f64) -> String {
    match map.unit {
        "ns" => figures::duration_ns(value.round() as u64),
        unit => format!("{} {unit}", text::per_second(value)),
    }
}

/// What did not race, or not to its end.
fn left_out(m: &mut Markup, map: &PairsMap) {
    let silent = map.paths.iter().flat_map(|path| {
        let describe = |pair: &PairFigure| {
            let why = pair.unmet.as_ref()?;
            Some(format!("{} from {} to {} did not race: {why}", path.name, pair.client, pair.server))
        };
        path.pairs.iter().filter_map(describe).collect::<Vec<_>>()
    });
    let ended = map.races.iter().filter_map(|race| {
        let rounds = figures::counted(race.rounds.into(), "round");
        Some(format!("{} to {} ended after {rounds}: {}", race.client, race.server, race.stopped.as_ref()?))
    });
    let lines: Vec<String> = silent.chain(ended).collect();
    if lines.is_empty() {
        return;
    }
    m.within("section", &[("id", "left-out")], |m| {
        m.leaf("h2", &[], "Did not race, or not to the end");
        m.within("ul", &[], |m| lines.iter().for_each(|line| m.leaf("li", &[], line)));
    });
}

fn method(m: &mut Markup, map: &PairsMap) {
    m.within("section", &[("id", "method")], |m| {
        m.leaf("h2", &[], "How pairs are compared");
        let text = format!(
            "All pairs race build by build, and are resampled by builds jointly. A pair is compared with the median of the \
             others. A node is compared, as client and as server, by the median over its partners with the pairs in which it \
             takes no part; of two in the middle the better one counts, so that one bad partner is not enough. A difference \
             must exceed what the control is off by, and its interval, at 5 % ÷ {} tests, must not hold 1: of 20 maps of a \
             cluster without a difference at most one names something. Where a percentile lies among requests without an answer \
             it has no ratio, and the shares of requests that have one are compared. The intervals of the map are those at 95 %, each for \
             itself, so that one in 20 misses its truth.",
            map.tests
        );
        m.leaf("p", &[("class", "lead")], &text);
    });
}
