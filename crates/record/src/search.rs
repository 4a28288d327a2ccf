//! The file of a search for settings: one JSON object, rewritten after each stage.
//!
//! It holds what every visit of every block gave, so that all figures can be computed again, and is what
//! `hostgap tune search --json` prints.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::framing::begins_like_a_line;
use crate::{Experiment, Machine, RecordError, Side, Tuning};

/// A search: what was asked, what each visit gave, what came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct SearchRecord {
    /// The version of this format, [`crate::SCHEMA`].
    pub schema: u32,
    /// The version of hostgap that wrote the file.
    pub hostgap: String,
    /// When it began, in seconds since 1970.
    pub started_unix_s: u64,
    /// The seed of all order.
    pub seed: u64,
    /// What the load was; its one candidate is the incumbent.
    pub experiment: Experiment,
    pub machine: Machine,
    /// The name of the incumbent.
    pub incumbent: String,
    /// The figure to improve: `p99@30%`, `throughput`.
    pub objective: String,
    /// What must not get worse: `p50`, `cpu`, `retransmits`.
    pub guards: Vec<String>,
    /// The rate of requests per second; absent: a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// What the search might take, in seconds.
    pub budget_s: f64,
    /// What was tried. Arms name options by their place in this list.
    pub options: Vec<SearchOption>,
    /// Every block, in order.
    pub blocks: Vec<SearchBlock>,
    /// The results of the stages.
    pub stages: Vec<SearchStage>,
    /// What came out; absent in the file of a search that was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<SearchAnswer>,
    /// How long it took so far, in seconds.
    pub wall_s: f64,
}

/// A setting that may help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct SearchOption {
    pub knob: String,
    pub value: String,
    /// The side on which the option is set.
    pub side: Side,
    /// Why it cannot be made here; empty: it is searched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmet: Vec<String>,
}

/// The incumbent and some arms, visited next to each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchBlock {
    /// Its visits, the incumbent's first. An arm without options after that is the incumbent once more.
    pub visits: Vec<SearchVisit>,
}

/// What a visit gave.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchVisit {
    /// The options in force, as indexes into the record's options.
    pub arm: Vec<usize>,
    /// The objective: nanoseconds, answers or bytes per second, nanoseconds of CPU time per answer or byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<f64>,
    /// The guarded figures, likewise.
    pub guards: Vec<Option<f64>>,
    /// Slices that did not count.
    #[serde(default)]
    pub void: u32,
    /// Why the arm was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

/// What a stage found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct SearchStage {
    /// `calibration`, `screening`, `race`, `confirmation`, `ablation` or `recheck`.
    pub name: String,
    /// How many blocks it took.
    pub blocks: u32,
    pub arms: Vec<SearchArm>,
}

/// An arm in a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchArm {
    /// The options of the arm, as indices.
    pub arm: Vec<usize>,
    /// The objective as a ratio to the incumbent's; in an ablation the winner's as a ratio to that without the option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<SearchRatio>,
    /// Why it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
    /// Whether it went on to the next round or stage.
    pub kept: bool,
}

/// A ratio with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchRatio {
    /// The point estimate, inside the interval.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The number of blocks behind it.
    pub blocks: u32,
}

/// What came out of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchAnswer {
    /// Whether an arm is better than the incumbent, none is, or it was not found out.
    pub verdict: SearchVerdict,
    /// The smallest set that keeps the gain, or the best arm that was not good enough; empty where there is none.
    pub arm: Vec<usize>,
    /// The objective with it as a ratio to the incumbent's, from blocks that played no part in choosing it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<SearchRatio>,
    /// The guarded figures, likewise.
    pub guards: Vec<Option<SearchRatio>>,
    /// Options of the winner that had no effect.
    pub dropped: Vec<usize>,
    /// Why, in a sentence without a full stop.
    pub why: String,
    /// The change of the objective, as a share, that the hold-out finds four times in five; a smaller change may have
    /// been missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolvable: Option<f64>,
    /// The incumbent's settings with those of the arm, as a candidate has them. Empty unless something is better.
    #[serde(default, skip_serializing_if = "Tuning::is_empty")]
    pub tune: Tuning,
}

/// Whether any of the options helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchVerdict {
    /// The arm is better than the incumbent.
    Better,
    /// No option helps by as much as the search resolves.
    NothingHelps,
    /// The machine was not fit for a search, or the budget too small.
    NotSearched,
}

impl SearchRecord {
    /// Whether a file is a search's, and not a race's, of which every line begins with its checksum, damaged or not.
    pub fn is_in(bytes: &[u8]) -> bool {
        let bytes = bytes.trim_ascii_start();
        bytes.starts_with(b"{") && !begins_like_a_line(bytes)
    }

    /// Reads the content of a file; `path` is for messages. A file that was cut off is accepted too: it has no answer.
    ///
    /// # Errors
    ///
    /// It has a later schema or a field that this version does not know, or refers to an option that is not in it.
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<SearchRecord, RecordError> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
            #[serde(default)]
            hostgap: String,
        }
        let path = path.to_owned();
        // A later version may have fields that this one would refuse with another reason.
        if let Ok(Version { schema: found, hostgap }) = serde_json::from_slice(bytes)
            && found > crate::SCHEMA
        {
            return Err(RecordError::Newer { path, found, hostgap });
        }
        let search: SearchRecord = match serde_json::from_slice(bytes) {
            Ok(search) => search,
            Err(source) => return Err(RecordError::NoSearch { path, why: source.to_string() }),
        };
        search.consistent().map_err(|why| RecordError::NoSearch { path, why })?;
        Ok(search)
    }

    /// That arms name options that there are, stages have their blocks, and visits a figure for each guard.
    fn consistent(&self) -> Result<(), String> {
        let visits = self.blocks.iter().flat_map(|block| &block.visits);
        let stages = self.stages.iter().flat_map(|stage| &stage.arms);
        let answer = self.answer.iter().flat_map(|answer| [&answer.arm, &answer.dropped]);
        let arms = visits.clone().map(|visit| &visit.arm).chain(stages.map(|arm| &arm.arm)).chain(answer);
        if let Some(place) = arms.flatten().find(|place| **place >= self.options.len()) {
            return Err(format!("an arm has option {place}, and there are {}", self.options.len()));
        }
        // The file is written after each stage, with all blocks of that stage.
        let took: u64 = self.stages.iter().map(|stage| u64::from(stage.blocks)).sum();
        let blocks = self.blocks.len();
        if took > blocks as u64 {
            return Err(format!("its stages took {took} blocks, and it has {blocks}: some are missing"));
        }
        let guards = self.guards.len();
        if let Some(visit) = visits.clone().find(|visit| visit.guards.len() != guards) {
            return Err(format!("a visit has {} guarded figures of {guards}", visit.guards.len()));
        }
        Ok(())
    }

    /// The blocks of a stage, by its place among the stages; fewer than it took where the file was cut.
    pub fn blocks_of(&self, stage: usize) -> &[SearchBlock] {
        let took = |stages: &[SearchStage]| stages.iter().map(|stage| stage.blocks as usize).sum::<usize>();
        let from = took(&self.stages[..stage]).min(self.blocks.len());
        let to = took(&self.stages[..=stage]).min(self.blocks.len());
        &self.blocks[from..to]
    }

    /// Replaces the file atomically: a reader sees the old one or the new one.
    ///
    /// # Errors
    ///
    /// The disk refused, or a figure is not a number.
    pub fn save(&self, path: &Path) -> Result<(), RecordError> {
        let unwritable = |why| RecordError::Unwritable { path: path.to_owned(), why };
        let text = serde_json::to_string_pretty(self).map_err(unwritable)?;
        let fresh = path.with_extension("json.new");
        let write = || {
            let mut file = File::create(&fresh)?;
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_data()?;
            std::fs::rename(&fresh, path)?;
            // Without it a power cut may bring the old one back.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        };
        write().map_err(|why| {
            let _ = std::fs::remove_file(&fresh);
            RecordError::Io { doing: "write record", path: path.to_owned(), why }
        })
    }
}

impl SearchOption {
    /// `tcp_sack=0`, with the side where it is one side's.
    pub fn label(&self) -> String {
        let side = match self.side {
            Side::Both => "",
            Side::Client => "client.",
            Side::Server => "server.",
        };
        format!("{side}{}={}", self.knob, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search() -> SearchRecord {
        SearchRecord {
            schema: crate::SCHEMA,
            hostgap: "0".to_owned(),
            started_unix_s: 1,
            seed: 2,
            experiment: Experiment::default(),
            machine: Machine::default(),
            incumbent: "host".to_owned(),
            objective: "throughput".to_owned(),
            guards: vec!["cpu".to_owned()],
            rate_per_s: None,
            budget_s: 60.0,
            options: vec![SearchOption {
                knob: "tcp_sack".to_owned(),
                value: "0".to_owned(),
                side: Side::Server,
                unmet: Vec::new(),
            }],
            blocks: vec![SearchBlock {
                visits: vec![
                    SearchVisit { objective: Some(5.0), guards: vec![Some(1.0)], ..SearchVisit::default() },
                    SearchVisit {
                        arm: vec![0],
                        guards: vec![None],
                        broken: Some("x".to_owned()),
                        ..SearchVisit::default()
                    },
                ],
            }],
            stages: Vec::new(),
            answer: None,
            wall_s: 3.0,
        }
    }

    #[test]
    fn stages_have_their_blocks_in_order() {
        let mut search = search();
        let block = search.blocks[0].clone();
        search.blocks = vec![block; 5];
        for (name, blocks) in [("calibration", 2), ("race", 2), ("confirmation", 9)] {
            search.stages.push(SearchStage { name: name.to_owned(), blocks, arms: Vec::new() });
        }
        assert_eq!([0, 1, 2].map(|stage| search.blocks_of(stage).len()), [2, 2, 1]);
    }

    #[test]
    fn a_search_is_written_anew_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("search.json");
        let mut search = search();
        assert_eq!(search.options[0].label(), "server.tcp_sack=0");
        search.save(&path).unwrap();
        search.stages.push(SearchStage { name: "calibration".to_owned(), blocks: 1, arms: Vec::new() });
        search.save(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<SearchRecord>(&text).unwrap(), search);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        assert!(
            SearchRecord::is_in(text.as_bytes()) && !SearchRecord::is_in(b"{\"crc32\":\"0\",\"line\":{}}")
        );
        let read = |text: &str| SearchRecord::from_bytes(text.as_bytes(), &path);
        assert_eq!(read(&text).unwrap(), search);
        for (from, to, why) in [
            ("\"seed\"", "\"sead\"", "unknown field `sead`"),
            (
                "\"arm\": [\n            0",
                "\"arm\": [\n            7",
                "an arm has option 7, and there are 1",
            ),
            ("\"blocks\": 1", "\"blocks\": 2", "its stages took 2 blocks, and it has 1: some are missing"),
            ("\"schema\": 1", "\"schema\": 2", "in schema 2, and this hostgap reads schema 1"),
            ("\"guards\": [\n    \"cpu\"\n  ]", "\"guards\": []", "a visit has 1 guarded figures of 0"),
        ] {
            assert!(text.contains(from), "{text}");
            let error = read(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let error = search.save(&dir.path().join("nowhere/search.json")).unwrap_err();
        assert!(error.to_string().starts_with("write "), "{error}");
    }
}
