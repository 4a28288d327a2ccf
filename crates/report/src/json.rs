//! The JSON of a summary, described by `docs/report.schema.json` and `docs/json.md`.

use crate::terminal::safe;
use crate::{PairsMap, Summary};

/// A summary as JSON, indented, with a newline at the end.
pub fn json(summary: &Summary) -> String {
    let mut text = serde_json::to_string_pretty(summary).expect("a summary has text keys only");
    text.push('\n');
    safe(&text).into_owned()
}

/// The summaries of one experiment on several kernels, in the order of the kernels, as one JSON object.
pub fn json_of_all(summaries: &[Summary]) -> String {
    #[derive(serde::Serialize)]
    struct All<'a> {
        schema: u32,
        races: &'a [Summary],
    }
    let all = All { schema: crate::SCHEMA, races: summaries };
    let mut text = serde_json::to_string_pretty(&all).expect("a summary has text keys only");
    text.push('\n');
    safe(&text).into_owned()
}

/// The map of a race of all pairs and the summaries of its races, as one JSON object.
pub fn json_of_pairs(map: &PairsMap, summaries: &[Summary]) -> String {
    #[derive(serde::Serialize)]
    struct All<'a> {
        schema: u32,
        map: &'a PairsMap,
        races: &'a [Summary],
    }
    let all = All { schema: crate::SCHEMA, map, races: summaries };
    let mut text = serde_json::to_string_pretty(&all).expect("a map has text keys only");
    text.push('\n');
    safe(&text).into_owned()
}
