//! The results of a race of all pairs of a cluster's nodes, as plain values: which pair, which path, which node is
//! worse than the rest.

use record::NodeInZone;
use serde::Serialize;
use verdict::Verdict;

use crate::quantities::{Load, Ratio};

/// The map of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairsMap {
    /// The name of the experiment.
    pub experiment: String,
    /// The version of hostgap that raced.
    pub hostgap: String,
    /// Start, in seconds since 1970.
    pub started_unix_s: u64,
    /// The nodes, those of a zone side by side.
    pub nodes: Vec<NodeInZone>,
    /// Each pair in each direction, as it raced.
    pub races: Vec<PairRace>,
    /// The load at which pairs are compared; `None`: nothing has been raced.
    pub load: Option<Load>,
    /// What the figures of the map are: "p99", "typical p99", "p50", or the unit of throughput in a closed loop.
    pub statistic: &'static str,
    /// What they count: "ns", or in a closed loop "req/s" or what else throughput is counted in.
    pub unit: &'static str,
    /// How many tests decided what is worse than the rest; their intervals are wider for that.
    pub tests: usize,
    /// The reference and the contenders.
    pub paths: Vec<PathMap>,
    /// What is worse than the rest, nodes first.
    pub findings: Vec<PairsFinding>,
    /// The map in a sentence.
    pub verdict: String,
    /// What a reader must know to believe the figures.
    pub notes: Vec<String>,
}

/// A race of one pair in one direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PairRace {
    /// The node on which the client ran.
    pub client: String,
    /// The node on which the server ran.
    pub server: String,
    /// Rounds in its record.
    pub rounds: u32,
    /// Why it ended before its last round, if it did.
    pub stopped: Option<String>,
}

/// A path between all pairs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathMap {
    /// The name of the path.
    pub name: String,
    /// The median of the pairs' figures, in [`PairsMap::unit`].
    pub median: Option<f64>,
    /// One entry a race, in their order.
    pub pairs: Vec<PairFigure>,
}

/// A path between two nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairFigure {
    /// The node on which the client ran.
    pub client: String,
    /// The node on which the server ran.
    pub server: String,
    /// Its figure, in [`PairsMap::unit`]; `None`: it has none, or too few samples.
    pub figure: Option<f64>,
    /// The figure ÷ the median of the other pairs', with the 95 % interval.
    pub over_others: Option<Ratio>,
    /// The figure ÷ that of the pair's own host.
    pub over_host: Option<Ratio>,
    /// The comparison with the other pairs.
    pub verdict: Option<Verdict>,
    /// The statistic that decided, if one did.
    pub decided_by: Option<&'static str>,
    /// Why it did not race, if it did not.
    pub unmet: Option<String>,
}

impl PairFigure {
    /// Whether it has no ratio of `statistic` because that is by requests without an answer.
    pub(crate) fn is_by_unanswered(&self, statistic: &str) -> bool {
        self.over_others.is_none() && self.decided_by == Some(statistic)
    }

    /// What stands behind a ratio of `statistic` that was judged, with what decided where that is another
    /// one: " ▲ p50".
    pub(crate) fn mark(&self, statistic: &str) -> String {
        let arrow = match self.verdict {
            Some(Verdict::Worse) => "▲",
            Some(Verdict::Better) => "▼",
            Some(Verdict::Indistinguishable | Verdict::Reference) | None => return String::new(),
        };
        let other = self.decided_by.filter(|of| *of != statistic);
        other.map_or_else(|| format!(" {arrow}"), |of| format!(" {arrow} {of}"))
    }
}

/// Something that is worse than the rest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairsFinding {
    /// The node that is worse in all its pairs, or most; `None`: it is a pair.
    pub node: Option<NodeInZone>,
    /// As what: "client" or "server".
    pub role: Option<&'static str>,
    /// The client's node of a pair that is worse.
    pub client: Option<String>,
    /// The server's node of it.
    pub server: Option<String>,
    /// With which paths, in display order.
    pub paths: Vec<WorsePathFigure>,
    /// Whether `host` is among them: then it is the nodes or the network between them, and not a path of pods alone.
    pub with_host: bool,
    /// The finding in a sentence.
    pub sentence: String,
}

/// A path of a finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorsePathFigure {
    /// The name of the path.
    pub name: String,
    /// The statistic that decided: "p99".
    pub statistic: &'static str,
    /// The ratio to the rest, with the 95 % interval; `None` where it decides by requests without an answer.
    pub ratio: Option<Ratio>,
    /// Who leaves how many requests without an answer; only where that decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<UnansweredShares>,
}

/// Shares of requests without an answer, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UnansweredShares {
    /// On this path.
    pub own: f64,
    /// On the rest.
    pub rest: f64,
}
