//! The experiment file: TOML that becomes an [`Experiment`]. Errors have a place and a suggestion; all figures have
//! ranges.

use crate::experiment_error::{ExperimentError, out_of_range, place, within};
use crate::spelling::nearest;
use crate::{Experiment, Measure, Published, RequestedRate, SCHEMA, Wire};

/// The most loads: body sizes × rates.
const LOADS_MAX: usize = 64;

impl Experiment {
    /// Reads an experiment file and checks its ranges.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, with its place in the text where it has one.
    pub fn from_toml(text: &str) -> Result<Experiment, ExperimentError> {
        let experiment: Experiment = toml::from_str(text).map_err(|error| located(text, &error))?;
        experiment.validate().map_err(|error| super::sweep::check::located(text, error))?;
        experiment.quick()?;
        Ok(experiment)
    }

    /// The text of a file that parses to this experiment.
    ///
    /// # Panics
    /// If one of its texts cannot be written as TOML, which cannot happen for an experiment read from a file.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("all keys and values of an experiment are TOML's")
    }

    /// Checks the ranges of all figures, wherever the experiment came from.
    ///
    /// # Errors
    ///
    /// The first figure that is out of its range.
    pub fn validate(&self) -> Result<(), ExperimentError> {
        self.validate_plain()?;
        self.validate_sweep()
    }

    /// Checks all fields except the sweep.
    pub(crate) fn validate_plain(&self) -> Result<(), ExperimentError> {
        if self.schema != SCHEMA {
            return Err(ExperimentError::Schema { found: self.schema });
        }
        let letters = self.name.chars().count();
        if !(1..=100).contains(&letters) || self.name.chars().any(char::is_control) {
            return Err(out_of_range("name", &self.name, "1 to 100 printable characters are expected"));
        }
        within("rounds", self.rounds, 1..=100_000)?;
        within("builds", self.builds, 1..=self.rounds)?;
        within("slice_ms", self.slice_ms, 10..=600_000)?;
        within("warmup_ms", self.warmup_ms, 0..=600_000)?;
        // Every data path carries IPv6, whose packets of 1280 bytes must fit (RFC 8200 §5); vxlan adds 50 bytes over
        // IPv4, 70 over IPv6.
        let mtu_min = if self.workload.ipv6 { 1_350 } else { 1_330 };
        within("underlay.mtu", self.underlay.mtu, mtu_min..=65_535)?;
        self.vm.as_ref().map_or(Ok(()), crate::Machines::validate)?;
        self.validate_wires()?;
        self.validate_cards()?;
        self.validate_candidates()?;
        self.validate_loads()?;
        self.validate_filters()?;
        self.validate_until()?;
        self.validate_published()
    }

    fn validate_wires(&self) -> Result<(), ExperimentError> {
        let underlay = &self.underlay;
        let ways = [
            ("underlay", underlay.both_ways()),
            ("underlay.to_server", underlay.to_server()),
            ("underlay.to_client", underlay.to_client()),
        ];
        let crosses = |table: &str, wire: Wire| {
            wire.validate(table)?;
            if wire == Wire::default() || self.placement.is_usual() {
                return Ok(());
            }
            let why = "with `placement = \"same_node\"` nothing crosses the wire";
            Err(out_of_range(table, wire, why))
        };
        ways.into_iter().try_for_each(|(table, wire)| crosses(table, wire))?;
        for candidate in self.candidates.iter().filter(|candidate| !candidate.underlay.is_empty()) {
            let own = underlay.with(&candidate.underlay);
            crosses("candidates.underlay.to_server", own.to_server())?;
            crosses("candidates.underlay.to_client", own.to_client())?;
        }
        Ok(())
    }

    fn validate_loads(&self) -> Result<(), ExperimentError> {
        let bodies = &self.workload.body_bytes;
        let loads = bodies.len() * self.rates.len().max(1);
        if bodies.is_empty() {
            return Err(out_of_range("workload.body_bytes", "empty", "at least one size is expected"));
        }
        if loads > LOADS_MAX {
            let count = format!("{} sizes × {} rates", bodies.len(), self.rates.len());
            return Err(out_of_range("rates", count, format!("at most {LOADS_MAX} loads can be raced")));
        }
        for (index, rate) in self.rates.iter().enumerate() {
            rate.checked().map_err(|error| out_of_range("rates", rate, error.why))?;
            if self.rates[..index].iter().any(|other: &RequestedRate| other == rate) {
                return Err(out_of_range("rates", rate, "it is listed twice"));
            }
        }
        self.workload.validate(&self.rates)?;
        if self.exact() && !matches!(self.workload.kind.measure(), Measure::Latency | Measure::Frames) {
            let why =
                "instructions are counted for a request, and this workload has none that wait for an answer";
            return Err(out_of_range("workload.kind", self.workload.kind.name(), why));
        }
        Ok(())
    }

    fn validate_published(&self) -> Result<(), ExperimentError> {
        if let Some((key, value, why)) = self.published.iter().find_map(Published::fault) {
            return Err(out_of_range(key, value, why));
        }
        match &self.reading_of {
            Some(run) if !is_date(&run.date) => {
                Err(out_of_range("reading_of.date", &run.date, "a day is expected, such as 2026-11-22"))
            }
            _ => Ok(()),
        }
    }
}

/// Four digits, two, two.
fn is_date(text: &str) -> bool {
    let shape = |letter: char| if letter.is_ascii_digit() { '0' } else { letter };
    text.chars().map(shape).eq("0000-00-00".chars())
}

/// The parser's error with its place as a person counts it.
fn located(text: &str, error: &toml::de::Error) -> ExperimentError {
    let (line, column) = place(text, error.span().map_or(0, |span| span.start));
    let (what, nearest) = explain(error.message());
    ExperimentError::Text { line, column, what, nearest }
}

/// The error, and the known key that an unknown one probably stands for. serde reports both in one sentence: "unknown
/// field `a`, expected one of `b`, `c`".
fn explain(message: &str) -> (String, Option<String>) {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match quoted.split_first() {
        Some((unknown, known)) if message.starts_with("unknown field") => {
            (format!("unknown key `{unknown}`"), nearest(unknown, known).map(|key| (*key).to_owned()))
        }
        _ => (message.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WHOLE: &str = r#"
schema = 1
name = "backends of flannel"
description = "host-gw against vxlan, as in the publication"
rates = ["30%", "20k", 50000]
rounds = 12
builds = 4
slice_ms = 200
warmup_ms = 30
seed = 7
placement = "same_node"
profile = true
why_late = true

[workload]
body_bytes = [100, 4096]
connections = 64
server = "nginx"

[underlay]
mtu = 9001

[[candidates]]
path = "bridge+direct"

[[candidates]]
path = "bridge+vxlan"
required = true

[[candidates]]
cni = "ptp.conflist"

[[published]]
path = "bridge+vxlan"
what = "p99 ms at 150k req/s"
value = 1.5
source = "a talk, 2015"

[quick]
rounds = 3
builds = 3
"#;

    #[track_caller]
    fn check(text: &str, message: &str) {
        let error = Experiment::from_toml(text).expect_err(text);
        assert_eq!(error.to_string(), message);
    }

    /// The smallest file with lines added.
    fn with(lines: &str) -> String {
        format!("schema = 1\nname = \"x\"\n{lines}")
    }

    #[test]
    fn a_whole_file_is_read_and_written_again() {
        let experiment = Experiment::from_toml(WHOLE).unwrap();
        assert_eq!(
            experiment.rates,
            [RequestedRate::OfCapacity(0.3), RequestedRate::PerSecond(2e4), RequestedRate::PerSecond(5e4)]
        );
        assert!(experiment.candidates[1].required && !experiment.candidates[0].required);
        let cni = &experiment.candidates[2];
        assert_eq!((cni.path.as_str(), cni.cni.as_deref()), ("", Some("ptp.conflist")));
        assert_eq!((experiment.underlay.mtu, experiment.seed), (9001, Some(7)));
        assert_eq!((experiment.placement, experiment.profile), (crate::Placement::SameNode, true));
        assert!(experiment.why_late);
        let again = toml::to_string(&experiment).unwrap();
        let without_quick = Experiment { quick: None, ..experiment };
        assert_eq!(Experiment::from_toml(&again).unwrap(), without_quick, "{again}");
    }

    /// Records of races without CNI plugins are the same as before there were any, for older readers.
    #[test]
    fn a_data_path_is_written_as_it_always_was() {
        let old = r#"{"path":"docker","required":true}"#;
        let candidate: crate::Candidate = serde_json::from_str(old).unwrap();
        assert_eq!(serde_json::to_string(&candidate).unwrap(), old);
        let cni = crate::Candidate { cni: Some("a.conf".to_owned()), ..crate::Candidate::default() };
        assert_eq!(serde_json::to_string(&cni).unwrap(), r#"{"cni":"a.conf","required":false}"#);
    }

    #[test]
    fn the_smallest_file_has_the_defaults() {
        let experiment = Experiment::from_toml(&with("")).unwrap();
        assert_eq!((experiment.rounds, experiment.builds), (24, 12));
        assert_eq!((experiment.slice_ms, experiment.warmup_ms), (100, 20));
        assert_eq!(experiment.workload.body_bytes, [100]);
        let written = toml::to_string(&experiment).unwrap();
        assert!(experiment.placement.is_usual() && !written.contains("placement"));
        assert!(!experiment.profile && !written.contains("profile"));
        assert!(!experiment.why_late && !written.contains("why_late"));
        assert!(experiment.rates.is_empty() && experiment.candidates.is_empty() && experiment.seed.is_none());
    }

    #[test]
    fn what_is_wrong_has_a_place_and_a_suggestion() {
        check(&with("round = 3"), "line 3, column 1: unknown key `round`, did you mean `rounds`?");
        check(
            &with("[workload]\n  conections = 3"),
            "line 4, column 3: unknown key `conections`, did you mean `connections`?",
        );
        check(&with("zzz = 3"), "line 3, column 1: unknown key `zzz`");
        check(
            &with("rates = [\"30 req\"]"),
            "line 3, column 10: `30 req` is not a rate: 30%, 20k, 1.5M or 20000 is expected",
        );
        check(&with("rounds = \"many\""), "line 3, column 10: invalid type: string \"many\", expected u32");
        check("name = \"x\"", "line 1, column 1: missing field `schema`");
    }

    #[test]
    fn ranges_are_checked() {
        check("schema = 2\nname = \"x\"", "the experiment has schema 2, this hostgap knows schema 1");
        check("schema = 1\nname = \"\"", "`name` is : 1 to 100 printable characters are expected");
        check(&with("rounds = 0"), "`rounds` is 0: 1 to 100000 is expected");
        check(&with("rounds = 4\nbuilds = 5"), "`builds` is 5: 1 to 4 is expected");
        check(&with("slice_ms = 5"), "`slice_ms` is 5: 10 to 600000 is expected");
        check(&with("underlay = { mtu = 1329 }"), "`underlay.mtu` is 1329: 1330 to 65535 is expected");
        check(
            &with("workload = { ipv6 = true }\nunderlay = { mtu = 1349 }"),
            "`underlay.mtu` is 1349: 1350 to 65535 is expected",
        );
        check(&with("workload = { connections = 0 }"), "`workload.connections` is 0: 1 to 60000 is expected");
        check(
            &with("workload = { connections = 9, connections_min = 10 }"),
            "`workload.connections_min` is 10: 1 to 9 is expected",
        );
        check(
            &with("workload = { body_bytes = [] }"),
            "`workload.body_bytes` is empty: at least one size is expected",
        );
        check(&with("workload = { body_bytes = [9, 9] }"), "`workload.body_bytes` is 9: it is listed twice");
        check(&with("rates = [\"20k\", 20000]"), "`rates` is 20000: it is listed twice");
        check(
            &with("candidates = [{ path = \"a\" }, { path = \"a\" }]"),
            "`candidates.path` is a: it races already",
        );
        let expected = "the name of a data path is expected, or `cni` with the file of a CNI configuration";
        check(&with("candidates = [{}]"), &format!("`candidates.path` is empty: {expected}"));
        check(
            &with("candidates = [{ cni = \"\" }]"),
            "`candidates.cni` is empty: the path of a file is expected",
        );
        check(
            &with("candidates = [{ path = \"a\", cni = \"b\" }]"),
            "`candidates.path` is a: a candidate is a data path or a CNI configuration; write two candidates",
        );
        let figure = "[[published]]\npath = \"a\"\nwhat = \"p99\"\nvalue = nan\nsource = \"b\"";
        check(&with(figure), "`published.value` is NaN: a finite number is expected");
        check(
            &with("reading_of = { date = \"today\", machine = \"mine\" }"),
            "`reading_of.date` is today: a day is expected, such as 2026-11-22",
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,80}", at in 0_usize..600) {
            let _unread = Experiment::from_toml(&text);
            let at = (0..=at.min(WHOLE.len())).rev().find(|at| WHOLE.is_char_boundary(*at)).unwrap();
            let _unread = Experiment::from_toml(&format!("{}{text}{}", &WHOLE[..at], &WHOLE[at..]));
        }
    }
}
