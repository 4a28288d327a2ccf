//! A search as text: its stages as tables, its answer as a sentence, its settings as a candidate has them.

use ::record::{
    Asked, Candidate, Search, SearchAnswer, SearchArm, SearchRatio, SearchStage, SearchVerdict, Tuning,
};

/// Everything that a person reads of a search.
pub(super) fn text(search: &Search) -> String {
    let mut text = format!("{} of {}\n", search.objective, search.incumbent);
    for stage in &search.stages {
        text += &format!("\n{}\n", table(stage, search));
    }
    if let Some(answer) = &search.answer {
        text += &format!("\n{}\n", sentence(answer));
        text += &beside(answer, search);
        if answer.verdict == SearchVerdict::Better {
            text += &format!("\nAs a candidate of an experiment:\n\n{}", candidate(search, &answer.tune));
        }
    }
    text.trim_end().to_owned()
}

/// A stage: its arms with their ratios and intervals, the best first.
fn table(stage: &SearchStage, search: &Search) -> String {
    let about = match stage.name.as_str() {
        "calibration" => "the incumbent against itself",
        "screening" => "each option, among the others",
        "race" => "chosen by these, so they flatter",
        "confirmation" => "fresh blocks",
        "ablation" => "the winner, and the winner against itself without an option",
        _ => "what is left, on fresh blocks",
    };
    let value = |arm: &SearchArm| arm.ratio.map_or(f64::INFINITY, |ratio| ratio.value);
    let mut arms: Vec<&SearchArm> = stage.arms.iter().collect();
    arms.sort_by(|a, b| value(a).total_cmp(&value(b)));
    if search.objective == "throughput" {
        arms.reverse();
    }
    let names: Vec<String> = arms.iter().map(|arm| name(arm, stage, search)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let rows = arms.iter().zip(&names).map(|(arm, name)| {
        let figure = match (&arm.broken, arm.ratio) {
            (Some(why), _) => format!("given up: {why}"),
            (None, Some(ratio)) => figure(&ratio),
            (None, None) => "no figure".to_owned(),
        };
        let kept = if arm.kept { "*" } else { " " };
        format!("  {kept} {name:<width$}  {figure}")
    });
    let head = format!("{} ({} blocks): {about}", stage.name, stage.blocks);
    std::iter::once(head).chain(rows).collect::<Vec<_>>().join("\n")
}

fn name(arm: &SearchArm, stage: &SearchStage, search: &Search) -> String {
    let told = |places: &[usize]| {
        places.iter().map(|place| search.options[*place].told()).collect::<Vec<_>>().join(" + ")
    };
    if arm.arm.is_empty() {
        return "incumbent again".to_owned();
    }
    if stage.name != "ablation" {
        return told(&arm.arm);
    }
    // The first of an ablation is the winner, whole; every other lacks one of its options.
    let whole = stage.arms.first().map_or(&[][..], |first| &first.arm);
    match whole.iter().find(|place| !arm.arm.contains(place)) {
        Some(left_out) => format!("what {} adds", told(&[*left_out])),
        None => "the winner, whole".to_owned(),
    }
}

/// "0.912 (0.884 to 0.940)".
fn figure(ratio: &SearchRatio) -> String {
    format!("× {:.3} ({:.3} to {:.3})", ratio.value, ratio.low, ratio.high)
}

fn sentence(answer: &SearchAnswer) -> String {
    let begin = match answer.verdict {
        SearchVerdict::Better => "Better",
        SearchVerdict::NothingHelps => "Nothing helps",
        SearchVerdict::NotSearched => "Not searched",
    };
    format!("{begin}: {}.", answer.why)
}

/// What else is known of the answer: guarded figures, options that did nothing, what may have been missed.
fn beside(answer: &SearchAnswer, search: &Search) -> String {
    let mut text = String::new();
    for (guard, ratio) in search.guards.iter().zip(&answer.guards) {
        let told = ratio.map_or_else(|| "unknown: too few blocks told".to_owned(), |ratio| figure(&ratio));
        text += &format!("  {guard} with it: {told}\n");
    }
    if !answer.dropped.is_empty() {
        let dropped: Vec<String> = answer.dropped.iter().map(|place| search.options[*place].told()).collect();
        text += &format!("  without effect, and left out: {}\n", dropped.join(", "));
    }
    if let Some(resolvable) = answer.resolvable.filter(|_| answer.verdict == SearchVerdict::NothingHelps) {
        text += &format!(
            "  gains below about {:.1} % cannot be told from none with this budget on this machine\n",
            100.0 * resolvable
        );
    }
    text
}

/// The incumbent with the settings, as TOML.
fn candidate(search: &Search, tune: &Tuning) -> String {
    let incumbent = search.experiment.candidates.first();
    let origin = match incumbent {
        Some(Candidate { cni: Some(file), .. }) => format!("cni = {file:?}"),
        Some(Candidate { path, .. }) => format!("path = {path:?}"),
        None => "path = \"host\"".to_owned(),
    };
    let of = |side: &str, knobs: &std::collections::BTreeMap<String, Asked>| -> Vec<String> {
        knobs.iter().map(|(knob, value)| format!("tune.{side}{knob} = {}", toml(value))).collect()
    };
    let name = format!("name = {:?}", format!("{} tuned", search.incumbent));
    let settings = [of("", &tune.both), of("client.", &tune.client), of("server.", &tune.server)].concat();
    [vec!["[[candidates]]".to_owned(), origin, name], settings].concat().join("\n") + "\n"
}

fn toml(value: &Asked) -> String {
    match value {
        Asked::Switch(_) | Asked::Number(_) => value.to_string(),
        Asked::Text(text) => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use ::record::{Experiment, SearchOption, Side};

    use super::*;

    fn option(knob: &str, value: &str, side: Side) -> SearchOption {
        SearchOption { knob: knob.to_owned(), value: value.to_owned(), side, unmet: Vec::new() }
    }

    fn arm(arm: &[usize], value: f64, kept: bool) -> SearchArm {
        let ratio = Some(SearchRatio { value, low: value - 0.01, high: value + 0.01, blocks: 20 });
        SearchArm { arm: arm.to_vec(), ratio, broken: None, kept }
    }

    fn stage(name: &str, arms: Vec<SearchArm>) -> SearchStage {
        SearchStage { name: name.to_owned(), blocks: 20, arms }
    }

    fn better() -> Search {
        let mut tune = Tuning::default();
        tune.both.insert("tcp_sack".to_owned(), Asked::Number(0));
        tune.client.insert("tcp_rmem".to_owned(), Asked::Text("4096 8192 16384".to_owned()));
        let incumbent = Candidate { path: "docker".to_owned(), ..Candidate::default() };
        let broken = SearchArm { ratio: None, broken: Some("it broke".to_owned()), ..arm(&[2], 1.0, false) };
        let told = arm(&[0, 1], 0.9, true);
        Search {
            schema: 1,
            hostgap: "0".to_owned(),
            started_unix_s: 0,
            seed: 1,
            experiment: Experiment { candidates: vec![incumbent], ..Experiment::default() },
            machine: ::record::Machine::default(),
            incumbent: "docker".to_owned(),
            objective: "p99@30%".to_owned(),
            guards: vec!["p50".to_owned(), "cpu".to_owned()],
            rate_per_s: Some(1000.0),
            budget_s: 600.0,
            options: vec![
                option("tcp_sack", "0", Side::Both),
                option("tcp_rmem", "4096 8192 16384", Side::Client),
                option("tcp_frto", "0", Side::Server),
            ],
            blocks: Vec::new(),
            stages: vec![
                stage("race", vec![arm(&[0], 1.1, false), broken, told.clone()]),
                stage(
                    "ablation",
                    vec![arm(&[0, 1, 2], 0.9, false), arm(&[0, 1], 1.0, false), arm(&[1, 2], 0.8, true)],
                ),
            ],
            answer: Some(SearchAnswer {
                verdict: SearchVerdict::Better,
                arm: vec![0, 1],
                ratio: told.ratio,
                guards: vec![told.ratio, None],
                dropped: vec![2],
                why: "p99@30% is lower".to_owned(),
                resolvable: Some(0.03),
                tune,
            }),
            wall_s: 500.0,
        }
    }

    #[test]
    fn a_search_is_tables_a_sentence_and_a_candidate() {
        let search = better();
        let shown = text(&search);
        for line in [
            "race (20 blocks): chosen by these, so they flatter",
            "  * tcp_sack=0 + client.tcp_rmem=4096 8192 16384  × 0.900 (0.890 to 0.910)",
            "    server.tcp_frto=0                             given up: it broke",
            "Better: p99@30% is lower.",
            "  p50 with it: × 0.900 (0.890 to 0.910)",
            "  cpu with it: unknown: too few blocks told",
            "  without effect, and left out: server.tcp_frto=0",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line:?} is not in\n{shown}");
        }
        // Rows of an ablation are called after what is left out.
        for row in ["  * what tcp_sack=0 adds         × 0.800", "    the winner, whole            × 0.900"]
        {
            assert!(shown.contains(row), "{shown}");
        }
        // What is printed can be raced.
        let candidate = &shown[shown.find("[[candidates]]").unwrap()..];
        let read = Experiment::from_toml(&format!("schema = 1\nname = \"x\"\n{candidate}")).unwrap();
        assert_eq!(read.candidates[0].path, "docker");
        assert_eq!(read.candidates[0].tune, search.answer.unwrap().tune);
    }

    #[test]
    fn nothing_is_told_with_what_may_have_been_missed() {
        let mut search = better();
        let answer = search.answer.as_mut().unwrap();
        answer.verdict = SearchVerdict::NothingHelps;
        let shown = text(&search);
        assert!(
            shown.contains("Nothing helps: ") && shown.contains("gains below about 3.0 % cannot be told"),
            "{shown}"
        );
        assert!(!shown.contains("[[candidates]]"), "{shown}");
    }
}
