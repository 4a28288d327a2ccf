//! A search as text: its stages as tables, its answer as a sentence, its settings as a candidate has them.

use record::{SearchAnswer, SearchRatio, SearchRecord, SearchStage, SearchVerdict};

use crate::terminal;

use super::{NO_ANSWER, ONLY_STAGES, about, arms_of, candidate, halving, is_better_high, name, sentence};

/// The text of a search.
pub fn text(search: &SearchRecord) -> String {
    terminal::safe(&compose(&named(search))).into_owned()
}

/// The search with names of one line each.
fn named(search: &SearchRecord) -> SearchRecord {
    let mut search = search.clone();
    let options = search.options.iter_mut().flat_map(|option| [&mut option.knob, &mut option.value]);
    let (stages, arms): (Vec<_>, Vec<_>) =
        search.stages.iter_mut().map(|stage| (&mut stage.name, &mut stage.arms)).unzip();
    let broken = arms.into_iter().flatten().filter_map(|arm| arm.broken.as_mut());
    let why = search.answer.as_mut().map(|answer| &mut answer.why);
    let names = [&mut search.objective, &mut search.incumbent].into_iter();
    for name in names.chain(&mut search.guards).chain(options).chain(stages).chain(broken).chain(why) {
        *name = terminal::line(name).into_owned();
    }
    search
}

fn compose(search: &SearchRecord) -> String {
    let mut text = format!("{} of {}\n", search.objective, search.incumbent);
    for (place, stage) in search.stages.iter().enumerate() {
        text += &format!("\n{}\n", table(stage, search));
        if stage.name == "race" {
            text += &rounds(search, place);
        }
    }
    let Some(answer) = &search.answer else {
        return text + &format!("\n{NO_ANSWER} {ONLY_STAGES}");
    };
    text += &format!("\n{}\n", sentence(answer));
    text += &beside(answer, search);
    if answer.verdict == SearchVerdict::Better {
        text += &format!("\nAs a candidate of an experiment:\n\n{}", candidate(search, &answer.tune));
    }
    text.trim_end().to_owned()
}

/// How many arms each round of a race had.
fn rounds(search: &SearchRecord, stage: usize) -> String {
    let rounds = halving(search, stage);
    let parts = rounds.iter().map(|round| format!("{} in {} blocks", round.arms.len(), round.blocks));
    if rounds.len() < 2 {
        return String::new();
    }
    format!("  by halves: {}\n", parts.collect::<Vec<_>>().join(", then "))
}

/// A stage: its arms with their ratios and intervals, the best first.
fn table(stage: &SearchStage, search: &SearchRecord) -> String {
    let arms = arms_of(stage, is_better_high(search));
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
    let head = format!("{} ({} blocks): {}", stage.name, stage.blocks, about(stage));
    std::iter::once(head).chain(rows).collect::<Vec<_>>().join("\n")
}

/// "0.912 (0.884 to 0.940)".
fn figure(ratio: &SearchRatio) -> String {
    format!("× {:.3} ({:.3} to {:.3})", ratio.value, ratio.low, ratio.high)
}

/// Further facts of the answer: guarded figures, options without effect, gains that may have been missed.
fn beside(answer: &SearchAnswer, search: &SearchRecord) -> String {
    let mut text = String::new();
    for (guard, ratio) in search.guards.iter().zip(&answer.guards) {
        let ratio = ratio.map_or_else(|| "unknown: too few blocks".to_owned(), |ratio| figure(&ratio));
        text += &format!("  {guard} with it: {ratio}\n");
    }
    if !answer.dropped.is_empty() {
        let dropped: Vec<String> =
            answer.dropped.iter().map(|place| search.options[*place].label()).collect();
        text += &format!("  left out, because no effect was proven: {}\n", dropped.join(", "));
    }
    if let Some(resolvable) = answer.resolvable.filter(|_| answer.verdict == SearchVerdict::NothingHelps) {
        text += &format!(
            "  gains below about {:.1} % cannot be detected with this budget on this machine\n",
            100.0 * resolvable
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use record::{Experiment, Side};

    use super::super::fixture::{better, hostile, interrupted, nothing};
    use super::*;

    #[test]
    fn a_search_is_tables_a_sentence_and_a_candidate() {
        let search = better();
        let shown = text(&search);
        for line in [
            "race (8 blocks): the choice is made by these, so they flatter",
            "  by halves: 4 in 3 blocks, then 2 in 5 blocks",
            "  * tcp_sack=0 + client.tcp_rmem=4096 8192 16384  × 0.900 (0.890 to 0.910)",
            "    server.tcp_frto=0                             given up: it broke",
            "Better: p99@30% is lower.",
            "  p50 with it: × 0.900 (0.890 to 0.910)",
            "  cpu with it: unknown: too few blocks",
            "  left out, because no effect was proven: server.tcp_frto=0",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line:?} is not in\n{shown}");
        }
        // The rows of an ablation are named after the options left out.
        for row in ["  * what tcp_sack=0 adds         × 0.800", "    the winner, whole            × 0.900"]
        {
            assert!(shown.contains(row), "{shown}");
        }
        // The printed candidate can be raced.
        let candidate = &shown[shown.find("[[candidates]]").unwrap()..];
        let read = Experiment::from_toml(&format!("schema = 1\nname = \"x\"\n{candidate}")).unwrap();
        assert_eq!(read.candidates[0].path, "docker");
        assert_eq!(read.candidates[0].tune, search.answer.unwrap().tune);
    }

    #[test]
    fn the_candidate_has_the_container_where_the_incumbent_had_it() {
        let mut search = better();
        search.experiment.candidates[0].in_container = Side::Server;
        let shown = text(&search);
        let candidate = &shown[shown.find("[[candidates]]").unwrap()..];
        let read = Experiment::from_toml(&format!("schema = 1\nname = \"x\"\n{candidate}")).unwrap();
        assert_eq!(read.candidates[0].in_container, Side::Server);
    }

    #[test]
    fn texts_of_a_record_are_shown_and_not_obeyed() {
        let mut search = hostile();
        for name in [&mut search.incumbent, &mut search.objective, &mut search.guards[0]] {
            name.push_str("\nBetter: forged\u{9b}2J");
        }
        let (text, json) = (text(&search), super::super::json(&search));
        for shown in [&text, &json] {
            assert!(!shown.contains(|c| c != '\n' && terminal::is_obeyed(c)), "{shown}");
        }
        assert!(text.contains("\\u001b\\u0000") && text.contains("\\u009b2J"), "{text}");
        assert!(!text.contains("\nBetter: forged"), "{text}");
    }

    /// Its stages mark the arms that were kept, as those of a finished search do.
    #[test]
    fn a_search_that_was_interrupted_has_no_answer() {
        let shown = text(&interrupted());
        let last =
            "No answer: the search was interrupted. Only these stages were finished; they are no answer.";
        assert!(shown.contains("  * ") && shown.ends_with(last), "{shown}");
    }

    #[test]
    fn where_nothing_helps_the_text_says_what_may_have_been_missed() {
        let shown = text(&nothing());
        assert!(
            shown.contains("Nothing helps: ") && shown.contains("gains below about 3.0 % cannot be detected"),
            "{shown}"
        );
        assert!(!shown.contains("[[candidates]]"), "{shown}");
    }
}
