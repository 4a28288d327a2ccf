//! Checks on the candidates of an experiment: one origin each, and distinct names.

use std::collections::BTreeSet;

use crate::experiment_error::out_of_range;
use crate::{Candidate, Experiment, ExperimentError, Side};

/// The most candidates, because each keeps four namespaces of its own throughout the race.
const CANDIDATES_MAX: usize = 64;
/// The longest name of a candidate in characters: a column of tables.
const NAME_CHARS_MAX: usize = 60;
/// The names of the reference and of its control, as [`bare`] has them.
const REFERENCE: [&str; 2] = ["host", "host-again"];

impl Experiment {
    /// Checks that each candidate is one thing, and that all have names of their own.
    pub(crate) fn validate_candidates(&self) -> Result<(), ExperimentError> {
        if self.candidates.len() > CANDIDATES_MAX {
            let count = format!("a list of {}", self.candidates.len());
            return Err(out_of_range(
                "candidates",
                count,
                format!("{CANDIDATES_MAX} can stand at the same time"),
            ));
        }
        let mut seen = BTreeSet::new();
        for candidate in &self.candidates {
            validate_origin(candidate)?;
            self.validate_container(candidate)?;
            validate_name(candidate)?;
            super::sweep::check::connections(candidate, self.workload.connections_max())?;
            self.validate_plant(candidate)?;
            self.validate_proxies(candidate)?;
            self.validate_stack(candidate)?;
            // The same file may race twice, as the host does, and gets a number.
            if candidate.cni.is_some() && candidate.name.is_none() {
                continue;
            }
            let title = candidate.title();
            let why = match (&candidate.name, candidate.tune.is_empty()) {
                (None, true) => "it races already",
                _ => "another candidate is called so, or differs in signs alone; give each a `name`",
            };
            if !seen.insert(bare(&title)) {
                return Err(out_of_range("candidates.path", title, why));
            }
        }
        Ok(())
    }

    /// A container on one side only requires a container and a second node. Whether a data path supports it is not
    /// known here.
    fn validate_container(&self, candidate: &Candidate) -> Result<(), ExperimentError> {
        let side = match candidate.in_container {
            Side::Both => return Ok(()),
            Side::Client => "client",
            Side::Server => "server",
        };
        let refused = |why: &str| Err(out_of_range("candidates.in_container", side, why));
        if candidate.cni.is_some() {
            return refused("CNI plugins join the pods of both sides; take a data path for one side alone");
        }
        if candidate.path == REFERENCE[0] {
            return refused("`host` is both sides without a container");
        }
        if !self.placement.is_usual() {
            return refused(
                "on one node the other side would be the node of the pod itself, a way of its own that no data path \
                 here is made for; race it on two nodes",
            );
        }
        Ok(())
    }
}

/// A candidate has one origin.
fn validate_origin(candidate: &Candidate) -> Result<(), ExperimentError> {
    match (candidate.path.as_str(), candidate.cni.as_deref()) {
        ("", None) => {
            let why = "the name of a data path is expected, or `cni` with the file of a CNI configuration";
            Err(out_of_range("candidates.path", "empty", why))
        }
        ("", Some("")) => Err(out_of_range("candidates.cni", "empty", "the path of a file is expected")),
        ("", Some(_)) | (_, None) => Ok(()),
        (path, Some(_)) => {
            let why = "a candidate is a data path or a CNI configuration; write two candidates";
            Err(out_of_range("candidates.path", path, why))
        }
    }
}

fn validate_name(candidate: &Candidate) -> Result<(), ExperimentError> {
    let Some(name) = &candidate.name else {
        if candidate.cni.is_some() && !candidate.tune.is_empty() {
            let why = "a CNI configuration with settings needs a `name`";
            return Err(out_of_range("candidates.name", "missing", why));
        }
        if !candidate.underlay.is_empty() {
            let why = "a candidate on a wire of its own needs a `name`";
            return Err(out_of_range("candidates.name", "missing", why));
        }
        return Ok(());
    };
    let refused = |why: &str| Err(out_of_range("candidates.name", name, why));
    let chars = name.chars().count();
    if !(1..=NAME_CHARS_MAX).contains(&chars) || name.chars().any(char::is_control) || name.trim() != name {
        return refused("1 to 60 printable characters are expected");
    }
    if !bare(name).contains(|sign: char| sign.is_ascii_alphanumeric()) {
        return refused("at least one letter or digit is expected");
    }
    if REFERENCE.contains(&bare(name).as_str()) {
        return refused("the reference is called so, which stays untouched");
    }
    Ok(())
}

/// A name reduced to letters and digits, as in the names of namespaces and directories.
fn bare(name: &str) -> String {
    name.chars()
        .map(|sign| if sign.is_ascii_alphanumeric() { sign.to_ascii_lowercase() } else { '-' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestedValue;

    /// The smallest file with lines added.
    fn with(lines: &str) -> String {
        format!("schema = 1\nname = \"x\"\n{lines}")
    }

    #[track_caller]
    fn check(text: &str, message: &str) {
        let error = Experiment::from_toml(text).expect_err(text);
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn settings_are_read_for_both_sides_and_for_one() {
        let text = with(
            "[[candidates]]\npath = \"host\"\nname = \"illinois\"\ntune.tcp_congestion_control = \"illinois\"\n\
             tune.tcp_sack = false\ntune.server.tcp_wmem = \"4096 65536 1048576\"\ntune.client.initcwnd = 16",
        );
        let experiment = Experiment::from_toml(&text).unwrap();
        let tune = &experiment.candidates[0].tune;
        assert_eq!(tune.both["tcp_congestion_control"], RequestedValue::Text("illinois".to_owned()));
        assert_eq!(tune.both["tcp_sack"], RequestedValue::Switch(false));
        assert_eq!(tune.client["initcwnd"], RequestedValue::Number(16));
        assert_eq!((tune.both.len(), tune.client.len(), tune.server.len()), (2, 1, 1));
        let again = toml::to_string(&experiment).unwrap();
        assert_eq!(Experiment::from_toml(&again).unwrap(), experiment, "{again}");
        let json = serde_json::to_string(&experiment).unwrap();
        assert_eq!(serde_json::from_str::<Experiment>(&json).unwrap(), experiment, "{json}");
        let error =
            Experiment::from_toml(&with("candidates = [{ path = \"a\", tune.b = 1.5 }]")).unwrap_err();
        assert!(error.to_string().contains("a string, an integer, true or false"), "{error}");
    }

    #[test]
    fn a_path_may_race_several_times_under_several_names() {
        let candidate = |rest: &str| format!("[[candidates]]\npath = \"host\"\n{rest}\n");
        let titles = |text: &str| -> Vec<String> {
            let experiment = Experiment::from_toml(&with(text)).unwrap();
            experiment.candidates.iter().map(Candidate::title).collect()
        };
        let long =
            candidate("tune.tcp_rmem = \"4096 131072 33554432\"\ntune.tcp_wmem = \"4096 65536 1048576\"");
        let three = [candidate("tune.tcp_sack = 0"), candidate("tune.server.tcp_sack = 0"), long.clone()];
        assert_eq!(titles(&three.concat()), ["host tcp_sack=0", "host server.tcp_sack=0", "host tuned"]);
        assert_eq!(titles(&candidate("name = \"x y\"")), ["x y"]);
        let taken = "another candidate is called so, or differs in signs alone; give each a `name`";
        check(&with(&[long.clone(), long].concat()), &format!("`candidates.path` is host tuned: {taken}"));
        let alike = [candidate("name = \"a b\""), candidate("name = \"A-b\"")].concat();
        check(&with(&alike), &format!("`candidates.path` is A-b: {taken}"));
        let cni = "candidates = [{ cni = \"a\", tune.tcp_sack = 0 }]";
        let why = "a CNI configuration with settings needs a `name`";
        check(&with(cni), &format!("`candidates.name` is missing: {why}"));
        for (name, why) in [
            ("Host again", "the reference is called so, which stays untouched"),
            ("++", "at least one letter or digit is expected"),
            (" x", "1 to 60 printable characters are expected"),
        ] {
            let text = with(&candidate(&format!("name = {name:?}")));
            check(&text, &format!("`candidates.name` is {name}: {why}"));
        }
    }

    #[test]
    fn one_side_alone_is_in_a_container_where_it_is_said() {
        let text = with(
            "[[candidates]]\npath = \"docker\"\nin_container = \"client\"\n\
             [[candidates]]\npath = \"docker\"\nin_container = \"server\"\ntune.tcp_sack = 0\n\
             [[candidates]]\npath = \"docker\"\nin_container = \"both\"",
        );
        let experiment = Experiment::from_toml(&text).unwrap();
        let titles: Vec<String> = experiment.candidates.iter().map(Candidate::title).collect();
        assert_eq!(titles, ["docker, client only", "docker tcp_sack=0, server only", "docker"]);
        let sides: Vec<Side> = experiment.candidates.iter().map(|candidate| candidate.in_container).collect();
        assert_eq!(sides, [Side::Client, Side::Server, Side::Both]);
        let again = experiment.to_toml();
        assert_eq!(again.matches("in_container").count(), 2, "both sides are not written: {again}");
        assert_eq!(Experiment::from_toml(&again).unwrap(), experiment, "{again}");
    }

    #[test]
    fn one_side_alone_is_refused_where_it_would_be_another_thing() {
        let candidate = |rest: &str| with(&format!("[[candidates]]\nin_container = \"server\"\n{rest}"));
        let refused = |why: &str| format!("`candidates.in_container` is server: {why}");
        check(&candidate("path = \"host\""), &refused("`host` is both sides without a container"));
        let plugins = "CNI plugins join the pods of both sides; take a data path for one side alone";
        check(&candidate("cni = \"a.conf\""), &refused(plugins));
        let one_node = format!("placement = \"same_node\"\n{}", "[[candidates]]\npath = \"docker\"\n");
        let error =
            Experiment::from_toml(&with(&format!("{one_node}in_container = \"client\""))).unwrap_err();
        assert!(error.to_string().contains("race it on two nodes"), "{error}");
        let twice = "path = \"docker\"\n[[candidates]]\npath = \"docker\"\nin_container = \"server\"";
        check(&candidate(twice), "`candidates.path` is docker, server only: it races already");
        let error = Experiment::from_toml(&candidate("path = \"docker\"").replace("server", "neither"));
        assert!(error.unwrap_err().to_string().contains("unknown variant `neither`"));
    }
}
