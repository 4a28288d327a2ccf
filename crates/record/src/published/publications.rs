//! The publications whose figures are built in, one file each in `published/`, and their figures by key.
//!
//! Each figure is there once, in the layout of its publication, so that the two can be compared by eye.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use super::{Direction, Metric};
use crate::spelling;

/// File name and text of each.
const FILES: &[(&str, &str)] = &[
    ("machine-zone-2015", include_str!("../../../../published/machine-zone-2015.toml")),
    ("hatena-2015", include_str!("../../../../published/hatena-2015.toml")),
    ("aws-2016", include_str!("../../../../published/aws-2016.toml")),
    ("hokkaido-2021", include_str!("../../../../published/hokkaido-2021.toml")),
];

/// A figure or a direction of a publication.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedFact {
    /// Publication, table, row and column, or publication and name, joined by `/`.
    pub key: String,
    /// Author, title and year of the publication, and its address where one is known.
    pub source: &'static str,
    /// Where in the publication it stands.
    pub place: &'static str,
    /// The circumstances of the measurement.
    pub setting: &'static str,
    /// The quantity measured, where the metric does not state it.
    pub what: String,
    /// What it can be compared by.
    pub metric: Option<Metric>,
    /// The unit of the value.
    pub unit: &'static str,
    /// What the value is rounded to.
    pub rounded_to: Option<f64>,
    /// The figure; `None` of a direction.
    pub value: Option<f64>,
    /// On which side of 1 the ratio of two candidates lies; `None` of a figure.
    pub direction: Option<Direction>,
}

/// A file of `published/`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Publication {
    key: String,
    source: String,
    /// What the names in the heads of tables mean.
    #[serde(default)]
    columns: BTreeMap<String, Column>,
    #[serde(default)]
    tables: Vec<Table>,
    #[serde(default)]
    figures: Vec<Figure>,
    #[serde(default)]
    directions: Vec<DirectionClaim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Column {
    #[serde(default)]
    metric: Option<Metric>,
    unit: String,
    rounded_to: f64,
}

/// Figures in rows, parted by spaces; the first word of a row is its name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    key: String,
    place: String,
    setting: String,
    head: String,
    rows: String,
}

/// A figure that stands alone.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    key: String,
    place: String,
    #[serde(default)]
    setting: String,
    #[serde(default)]
    what: String,
    #[serde(default)]
    metric: Option<Metric>,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    rounded_to: Option<f64>,
    value: f64,
}

/// Which is ahead, without a figure.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DirectionClaim {
    key: String,
    place: String,
    setting: String,
    what: String,
    direction: Direction,
    /// The metrics it applies to; each is a separate fact.
    metrics: Vec<Metric>,
}

/// All facts, in the order of the files.
///
/// # Panics
/// If a file is invalid; all of them are part of the program, and a test reads them.
pub fn facts() -> &'static [PublishedFact] {
    static FACTS: OnceLock<Vec<PublishedFact>> = OnceLock::new();
    FACTS.get_or_init(|| {
        let of = |(name, text): &(&str, &'static str)| {
            let publication = toml::from_str(text).map_err(|error| error.to_string());
            let all = publication.and_then(|publication| all_of(Box::leak(Box::new(publication))));
            all.unwrap_or_else(|error| panic!("published/{name}.toml: {error}"))
        };
        FILES.iter().flat_map(of).collect()
    })
}

/// The facts of a key: of a table all cells, of a row those of its columns.
pub(super) fn find(key: &str) -> Vec<&'static PublishedFact> {
    let is = |fact: &&PublishedFact| {
        fact.key.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    facts().iter().filter(is).collect()
}

/// The key most similar to an unknown one, cut to as many parts.
pub(super) fn nearest(key: &str) -> Option<String> {
    let parts = key.split('/').count();
    let cut = |fact: &PublishedFact| fact.key.split('/').take(parts).collect::<Vec<_>>().join("/");
    spelling::nearest(key, facts().iter().map(cut))
}

fn all_of(publication: &'static Publication) -> Result<Vec<PublishedFact>, String> {
    let mut facts = vec![];
    for table in &publication.tables {
        facts.extend(cells(publication, table).map_err(|error| format!("table {}: {error}", table.key))?);
    }
    facts.extend(publication.figures.iter().map(|figure| PublishedFact {
        place: &figure.place,
        setting: &figure.setting,
        what: figure.what.clone(),
        metric: figure.metric,
        unit: &figure.unit,
        rounded_to: figure.rounded_to,
        value: Some(figure.value),
        ..publication.fact(&figure.key)
    }));
    for claim in &publication.directions {
        facts.extend(claim.metrics.iter().map(|metric| PublishedFact {
            place: &claim.place,
            setting: &claim.setting,
            what: claim.what.clone(),
            metric: Some(*metric),
            direction: Some(claim.direction),
            ..publication.fact(&format!("{}/{}", claim.key, metric.name()))
        }));
    }
    Ok(facts)
}

/// The cells of a table, row by row.
fn cells(publication: &'static Publication, table: &'static Table) -> Result<Vec<PublishedFact>, String> {
    let names: Vec<&str> = table.head.split_whitespace().collect();
    let (of, names) = names.split_first().ok_or("no head")?;
    let mut facts = vec![];
    for row in table.rows.lines().filter(|row| !row.trim().is_empty()) {
        let words: Vec<&str> = row.split_whitespace().collect();
        let (row, values) = words.split_first().ok_or("an empty row")?;
        if values.len() != names.len() {
            return Err(format!("row {row} has {} figures under {} heads", values.len(), names.len()));
        }
        for (name, value) in names.iter().zip(values) {
            let column =
                publication.columns.get(*name).ok_or_else(|| format!("no column is called {name}"))?;
            let what = format!("{name} of {of} {row}");
            facts.push(PublishedFact {
                place: &table.place,
                setting: &table.setting,
                what: if column.metric.is_some() { String::new() } else { what },
                metric: column.metric,
                unit: &column.unit,
                rounded_to: Some(column.rounded_to),
                value: Some(value.parse().map_err(|_| format!("row {row}: `{value}` is no figure"))?),
                ..publication.fact(&format!("{}/{row}/{name}", table.key))
            });
        }
    }
    Ok(facts)
}

impl Publication {
    /// A fact of this publication without a value yet.
    fn fact(&'static self, key: &str) -> PublishedFact {
        PublishedFact {
            key: format!("{}/{key}", self.key),
            source: &self.source,
            place: "",
            setting: "",
            what: String::new(),
            metric: None,
            unit: "",
            rounded_to: None,
            value: None,
            direction: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cells of a row, by column.
    fn row(key: &str) -> BTreeMap<&'static str, f64> {
        let cells = find(key).into_iter();
        let cells: BTreeMap<_, _> = cells
            .map(|fact| (fact.key.rsplit('/').next().unwrap(), fact.value.expect("a table has figures")))
            .collect();
        assert!(cells.len() > 1, "{key} is a row");
        cells
    }

    fn rows(table: &str) -> Vec<String> {
        let mut rows: Vec<String> =
            find(table).iter().map(|fact| fact.key.rsplit_once('/').unwrap().0.to_owned()).collect();
        rows.dedup();
        rows
    }

    #[test]
    fn every_key_names_one_fact_that_can_be_compared_or_read() {
        let facts = facts();
        for (index, fact) in facts.iter().enumerate() {
            assert!(facts[..index].iter().all(|other| other.key != fact.key), "{} stands twice", fact.key);
            assert!(!fact.place.is_empty() && !fact.source.is_empty(), "{} stands nowhere", fact.key);
            assert!(fact.metric.is_some() || !fact.what.is_empty(), "{} says nothing", fact.key);
            assert!(
                fact.value.is_some() != fact.direction.is_some(),
                "{} is a figure or a direction",
                fact.key
            );
        }
        assert_eq!(find("machine-zone/150k-350B").len(), 30, "five setups with six figures");
        assert_eq!(find("machine-zone/150k-350").len(), 0, "a part of a name is no key");
    }

    /// The shares of a CPU's time add up to the whole, up to the rounding of six figures. A mistyped digit breaks
    /// that.
    #[test]
    fn the_times_of_each_cpu_add_up() {
        let tables = [("iperf-before", 5), ("iperf-after", 5), ("web-before", 17), ("web-after", 17)];
        for (table, lines) in tables {
            let rows = rows(&format!("hatena/{table}"));
            assert_eq!(rows.len(), lines, "{table}");
            for key in rows {
                let sum: f64 = row(&key).values().sum();
                assert!((sum - 100.0).abs() < 0.035, "{key} adds up to {sum}");
            }
        }
    }

    /// The line of all CPUs is near the mean of theirs. They are sampled by ticks, of which each has about a hundred,
    /// so it is no closer than two.
    #[test]
    fn the_line_of_all_cpus_is_near_the_mean_of_them() {
        for table in ["iperf-before", "iperf-after", "web-before", "web-after"] {
            let rows = rows(&format!("hatena/{table}"));
            for column in ["%sys", "%soft", "%idle"] {
                let of = |key: &String| row(key)[column];
                let mean = rows[1..].iter().map(of).sum::<f64>() / (rows.len() - 1) as f64;
                assert!((of(&rows[0]) - mean).abs() < 2.0, "{table} {column}: {} and {mean}", of(&rows[0]));
            }
        }
    }

    #[test]
    fn percentiles_of_a_row_do_not_fall() {
        for table in ["150k-350B", "250k-350B", "50k-4KB", "150k-4KB"] {
            for key in rows(&format!("machine-zone/{table}")) {
                let of = row(&key);
                let ladder = ["p95", "p99", "p99.5", "p99.99", "p99.999", "max"].map(|name| of[name]);
                assert!(ladder.is_sorted(), "{key}: {ladder:?}");
            }
        }
    }

    /// If a direction is about a load that has a table, the table agrees with it.
    #[test]
    fn directions_are_those_of_the_tables() {
        let directions = facts().iter().filter_map(|fact| fact.direction.map(|direction| (fact, direction)));
        let mut compared = 0;
        for (fact, direction) in directions {
            let parts: Vec<&str> = fact.key.split('/').collect();
            let [publication, "order", load, order, metric] = parts[..] else { panic!("{}", fact.key) };
            let side = match direction {
                Direction::Lower => "-below-",
                Direction::Higher => "-above-",
            };
            let (one, other) =
                order.split_once(side).unwrap_or_else(|| panic!("{} says otherwise", fact.key));
            let [one, other] = [one, other].map(|row| find(&format!("{publication}/{load}/{row}/{metric}")));
            if let ([one], [other]) = (&one[..], &other[..]) {
                let below = one.value.unwrap() < other.value.unwrap();
                assert_eq!(below, direction == Direction::Lower, "{}", fact.key);
                compared += 1;
            }
        }
        assert_eq!(compared, 4, "two directions of 250,000 requests/s, at two percentiles each");
    }

    /// Beside its tables the publication has one figure each for what was gained.
    #[test]
    fn the_gains_that_aws_states_are_those_of_its_tables() {
        let gain = |above: &str, below: &str, column: &str| {
            let of = |key: &str| row(&format!("aws/{key}"))[column];
            (of(above) / of(below) - 1.0) * 100.0
        };
        let stated = [
            (gain("loss/illinois", "loss/default", "bandwidth"), 137.0, 0.5),
            (gain("buffers/illinois-both-buffers-aqm", "buffers/default", "bandwidth"), 32.0, 0.5),
            (gain("mtu/mtu-9001", "mtu/default-mtu-1500", "bandwidth"), 5.0, 0.5),
            // 4.66, which the publication cuts off to 4.6.
            (gain("small-objects/illinois-initcwnd", "small-objects/default", "milliseconds"), -4.6, 0.1),
        ];
        for (ours, theirs, open) in stated {
            assert!((ours - theirs).abs() <= open, "{ours} and {theirs}");
        }
    }

    #[test]
    fn the_factors_that_hokkaido_states_are_those_of_its_figures() {
        let factor = |table: &str, column: &str| {
            let of = |switch: &str| find(&format!("hokkaido/{table}/{switch}/{column}"))[0].value.unwrap();
            of("ovs-dpdk") / of("linux-bridge")
        };
        assert_eq!(factor("one-machine-64", "Mbit").round(), 16.0);
        assert_eq!(factor("one-machine-1472", "Gbit").floor(), 4.0, "4.6, which it calls about four");
    }

    #[track_caller]
    fn check(table: &str, expected: &str) {
        let text = format!("key = 'k'\nsource = 's'\ncolumns.a = {{ unit = '%', rounded_to = 1 }}\n{table}");
        let publication = Box::leak(Box::new(toml::from_str::<Publication>(&text).unwrap()));
        assert_eq!(all_of(publication).unwrap_err(), expected);
    }

    #[test]
    fn a_table_that_is_none_is_refused() {
        let with = |head: &str, rows: &str| {
            format!("[[tables]]\nkey = 't'\nplace = 'p'\nsetting = 's'\nhead = '{head}'\nrows = '{rows}'")
        };
        check(&with("of a", "x 1 2"), "table t: row x has 2 figures under 1 heads");
        check(&with("of b", "x 1"), "table t: no column is called b");
        check(&with("of a", "x y"), "table t: row x: `y` is no figure");
        check(&with("", "x y"), "table t: no head");
    }
}
