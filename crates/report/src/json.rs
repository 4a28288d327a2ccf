//! The JSON of a summary, described by `docs/report.schema.json` and `docs/json.md`.

use crate::Summary;

/// A summary as JSON, indented, with a newline at the end.
pub fn json(summary: &Summary) -> String {
    let mut text = serde_json::to_string_pretty(summary).expect("a summary has text keys only");
    text.push('\n');
    text
}
