//! From the guest's lines to a table.

use std::fmt::{self, Write};

use anyhow::{Result, bail};
use serde_json::Value;

/// One line of the guest's script.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measured {
    path: String,
    what: What,
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    /// Who answers.
    Server(String),
    /// Instructions a request, of one run.
    Run(f64),
    /// Why there is no figure.
    Failed(String),
}

/// What became of every path, and what they are compared with.
#[derive(Debug)]
pub(super) struct Figures {
    rows: Vec<Row>,
    reference: f64,
    server: String,
}

#[derive(Debug)]
struct Row {
    path: String,
    runs: Vec<f64>,
    failed: Option<String>,
}

impl Measured {
    /// The whole lines of what the guest has written so far.
    pub(super) fn all(text: &str) -> Vec<Self> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().filter_map(Self::parse).collect()
    }

    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.trim_end().splitn(3, ' ');
        let (path, kind, rest) = (parts.next()?, parts.next()?, parts.next().unwrap_or_default());
        let what = match kind {
            "server" => What::Server(rest.to_owned()),
            "run" => instructions(rest).map_or_else(What::Failed, What::Run),
            "failed" => What::Failed(rest.to_owned()),
            _ => return None,
        };
        Some(Self { path: path.to_owned(), what })
    }
}

/// Nanoseconds between two requests, of a run that kept its account, or what was wrong with it.
///
/// The mean and not a percentile: percentiles come from a histogram with three significant digits.
fn instructions(json: &str) -> std::result::Result<f64, String> {
    let run: Value = serde_json::from_str(json).map_err(|_| json.to_owned())?;
    let (answered, duration_s) = (run["answered_in_schedule"].as_f64(), run["duration_s"].as_f64());
    match (answered, duration_s) {
        (Some(answered), Some(duration_s)) if run["valid"] == true && answered > 0.0 => {
            Ok(duration_s * 1e9 / answered)
        }
        _ => Err(format!("the run does not count: {}, {answered:?} answers", run["complaints"])),
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match &self.what {
            What::Server(server) => write!(f, "{path} stands, answered by {server}"),
            What::Run(instructions) => write!(f, "{path} {instructions:.0}"),
            What::Failed(reason) => write!(f, "{path} not measured: {reason}"),
        }
    }
}

impl Figures {
    /// Of all that the guest wrote; without the reference there is nothing to compare with.
    pub(super) fn new(lines: Vec<Measured>, reference: &str) -> Result<Self> {
        let (mut rows, mut servers): (Vec<Row>, Vec<String>) = (Vec::new(), Vec::new());
        for Measured { path, what } in lines {
            if rows.last().is_none_or(|row| row.path != path) {
                rows.push(Row { path, runs: Vec::new(), failed: None });
            }
            let row = rows.last_mut().expect("one was pushed");
            match what {
                What::Server(server) if servers.contains(&server) => {}
                What::Server(server) => servers.push(server),
                What::Run(instructions) => row.runs.push(instructions),
                What::Failed(reason) => row.failed = Some(reason),
            }
        }
        match rows.iter().find(|row| row.path == reference) {
            Some(row) if row.failed.is_none() && !row.runs.is_empty() => {
                let reference = row.median();
                Ok(Self { rows, reference, server: servers.join(" and ") })
            }
            Some(row) => bail!("{reference} was not measured: {}", row.failed.as_deref().unwrap_or("no run")),
            None => bail!("{reference} was not measured: the guest did not come to it"),
        }
    }

    /// The paths without figures.
    pub(super) fn failed(&self) -> impl Iterator<Item = String> {
        self.rows.iter().filter(|row| row.failed.is_some()).map(|row| row.path.clone())
    }

    /// A line a path: the median of its runs, how far these are apart, and the difference to the reference.
    pub(super) fn table(&self) -> String {
        let mut text = format!("{:<16} {:>12} {:>8} {:>9}", "path", "instructions", "spread", "to host");
        for row in &self.rows {
            if let Some(reason) = &row.failed {
                write!(text, "\n{:<16} {reason}", row.path).expect("a String takes everything");
                continue;
            }
            let (median, spread) = (row.median(), row.spread() * 100.0);
            let more = (median / self.reference - 1.0) * 100.0;
            write!(text, "\n{:<16} {median:>12.0} {spread:>6.2} % {more:>+7.1} %", row.path)
                .expect("a String takes everything");
        }
        text + &format!("\nanswered by {}", self.server)
    }
}

impl Row {
    /// The middle one of the runs, of which there are three.
    fn median(&self) -> f64 {
        let mut runs = self.runs.clone();
        runs.sort_by(f64::total_cmp);
        runs.get(runs.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The greatest less the least, as a share of the median.
    fn spread(&self) -> f64 {
        let greatest = self.runs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let least = self.runs.iter().copied().fold(f64::INFINITY, f64::min);
        (greatest - least) / self.median()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(path: &str, answered: u32) -> String {
        format!(
            "{path} run {{\"valid\":true,\"complaints\":[],\"duration_s\":0.1,\"answered_in_schedule\":{answered}}}\n"
        )
    }

    fn text() -> String {
        let mut text = String::from("modprobe: a warning\nhost server nginx/1.22.1\n");
        text += &[2000, 2002, 1998].map(|answered| run("host", answered)).concat();
        text += "netkit+direct failed could not run netkit+direct: no netkit\nbridge+direct server nginx/1.22.1\n";
        text + &[1250, 1250, 1250].map(|answered| run("bridge+direct", answered)).concat()
    }

    #[test]
    fn lines_become_a_table() {
        let figures = Figures::new(Measured::all(&text()), "host").unwrap();
        assert_eq!(
            figures.table(),
            "path             instructions   spread   to host\n\
             host                    50000   0.20 %    +0.0 %\n\
             netkit+direct    could not run netkit+direct: no netkit\n\
             bridge+direct           80000   0.00 %   +60.0 %\n\
             answered by nginx/1.22.1"
        );
        assert_eq!(figures.failed().collect::<Vec<_>>(), ["netkit+direct"]);
    }

    #[test]
    fn half_a_line_is_left_for_later() {
        let text = text();
        let whole = Measured::all(&text).len();
        assert_eq!(Measured::all(&text[..text.len() - 1]).len(), whole - 1);
    }

    #[test]
    fn runs_that_do_not_count_have_no_figure() {
        let line = "host run {\"valid\":false,\"complaints\":[\"a connection broke\"],\"duration_s\":0.1,\
                    \"answered_in_schedule\":5}\n";
        let message = Figures::new(Measured::all(line), "host").unwrap_err().to_string();
        assert!(message.contains("a connection broke"), "{message}");
        let message = Figures::new(Measured::all("host run could not connect\n"), "host").unwrap_err();
        assert!(message.to_string().contains("could not connect"), "{message}");
        assert!(Figures::new(Vec::new(), "host").is_err());
    }
}
